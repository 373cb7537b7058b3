// SPDX-License-Identifier: Apache-2.0
//
// The data plane in the kernel, in its four parts: the loaded object, the writer of configurations, the live policy,
// and the reader of what the programs count. One owner thread. Callers hold the part that they need.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "proxy/kernel_part/config_writer.h"
#include "proxy/kernel_part/kernel_object.h"
#include "proxy/kernel_part/kernel_policy.h"
#include "proxy/kernel_part/kernel_reader.h"

namespace hedgerow {

class KernelDataPlane {
 public:
  // Loads the programs, with `spec` (which gets its ids here) as the first configuration. For errors see KernelObject
  // and ConfigWriter.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Load(const DataPlaneSpec& spec);
  // Takes over what is pinned; see KernelObject::Adopt. Changes nothing.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Adopt(const DataPlaneSpec& spec, const std::string& folder,
                                                                const std::string& program_folder,
                                                                const v1::KernelRecord& pinned);

  KernelObject& object() { return *object_; }
  ConfigWriter& config() { return config_; }
  KernelPolicy& policy() { return policy_; }
  KernelReader& reader() { return reader_; }
  const DataPlaneSpec& spec() const { return config_.spec(); }  // with ids

 private:
  KernelDataPlane(std::unique_ptr<KernelObject> object, const DataPlaneSpec& spec)
      : object_(std::move(object)),
        config_(*object_, spec),
        policy_(*object_, config_.spec()),
        reader_(*object_, config_.spec()) {}

  std::unique_ptr<KernelObject> object_;
  ConfigWriter config_;
  KernelPolicy policy_;
  KernelReader reader_;
};

}  // namespace hedgerow
