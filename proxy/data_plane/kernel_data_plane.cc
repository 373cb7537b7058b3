// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/kernel_data_plane.h"

#include "proxy/data_plane/config_spec.h"

namespace hedgerow {

absl::StatusOr<std::unique_ptr<KernelDataPlane>> KernelDataPlane::Load(const DataPlaneSpec& spec) {
  const auto numbered = Numbered(spec);
  if (!numbered.ok()) return numbered.status();
  auto object = KernelObject::Load(*numbered);
  if (!object.ok()) return object.status();
  std::unique_ptr<KernelDataPlane> plane(new KernelDataPlane(*std::move(object), *numbered));
  if (absl::Status status = plane->config_.Reconfigure(*numbered); !status.ok()) return status;
  return plane;
}

absl::StatusOr<std::unique_ptr<KernelDataPlane>> KernelDataPlane::Adopt(const DataPlaneSpec& spec, const std::string& folder,
                                                                        const std::string& program_folder,
                                                                        const PinnedDataPlane& pinned) {
  const auto numbered = Numbered(spec);
  if (!numbered.ok()) return numbered.status();
  auto object = KernelObject::Adopt(*numbered, folder, program_folder, pinned);
  if (!object.ok()) return object.status();
  if (absl::Status status = CheckSpec(*numbered, (*object)->room()); !status.ok()) return status;
  return std::unique_ptr<KernelDataPlane>(new KernelDataPlane(*std::move(object), *numbered));
}

}  // namespace hedgerow
