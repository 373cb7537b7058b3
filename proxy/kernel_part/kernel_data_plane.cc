// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/kernel_data_plane.h"

#include "proxy/kernel_part/config_spec.h"

namespace hedgerow {

absl::StatusOr<std::unique_ptr<KernelDataPlane>> KernelDataPlane::Load(const DataPlaneSpec& spec) {
  const DataPlaneSpec with_ids = WithIds(spec);
  auto object = KernelObject::Load(with_ids);
  if (!object.ok()) return object.status();
  std::unique_ptr<KernelDataPlane> plane(new KernelDataPlane(*std::move(object), with_ids));
  if (absl::Status status = plane->config_.Reconfigure(with_ids); !status.ok()) return status;
  return plane;
}

absl::StatusOr<std::unique_ptr<KernelDataPlane>> KernelDataPlane::Adopt(const DataPlaneSpec& spec,
                                                                        const std::string& folder,
                                                                        const std::string& program_folder,
                                                                        const v1::KernelRecord& pinned) {
  const DataPlaneSpec with_ids = WithIds(spec);
  auto object = KernelObject::Adopt(with_ids, folder, program_folder, pinned);
  if (!object.ok()) return object.status();
  if (absl::Status status = CheckSpec(with_ids, (*object)->room()); !status.ok()) return status;
  return std::unique_ptr<KernelDataPlane>(new KernelDataPlane(*std::move(object), with_ids));
}

}  // namespace hedgerow
