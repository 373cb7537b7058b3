// SPDX-License-Identifier: Apache-2.0
//
// The record that a daemon keeps beside an instance's kernel part, for the next
// daemon: what was made, by which build, under which configuration. Written by
// ProxyInstance when it has made or taken over everything; read at each start,
// where it decides whether there is something to take over.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/api/record.pb.h"
#include "proxy/kernel_part/record_map.h"

namespace hedgerow {

class InstanceRecord {
 public:
  // In the folder of the instance's pins. Not complete until it is saved as such.
  static absl::StatusOr<InstanceRecord> Create(const std::string& pin_folder);
  // NotFound: there is no record, or it was never written. FailedPrecondition: it cannot be read.
  static absl::StatusOr<InstanceRecord> Open(const std::string& pin_folder);

  v1::KernelRecord& data() { return data_; }
  const v1::KernelRecord& data() const { return data_; }
  absl::Status Save();
  // In the same folder, where its pin was removed from outside. True: it was.
  absl::StatusOr<bool> RestorePin(const std::string& pin_folder) const;

 private:
  explicit InstanceRecord(RecordMap map) : map_(std::move(map)) {}
  RecordMap map_;
  v1::KernelRecord data_;
};

// Which network namespace this thread is in.
uint64_t NetworkNamespace();

}  // namespace hedgerow
