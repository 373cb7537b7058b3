// SPDX-License-Identifier: Apache-2.0
#include "proxy/instance/instance_record.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

std::string PathOf(const std::string& pin_folder) { return absl::StrCat(pin_folder, "/record"); }

}  // namespace

absl::StatusOr<InstanceRecord> InstanceRecord::Create(const std::string& pin_folder) {
  auto map = RecordMap::Create(PathOf(pin_folder));
  if (!map.ok()) return map.status();
  return InstanceRecord(*std::move(map));
}

absl::StatusOr<InstanceRecord> InstanceRecord::Open(const std::string& pin_folder) {
  auto map = RecordMap::Open(PathOf(pin_folder));
  if (!map.ok()) return map.status();
  InstanceRecord record(*std::move(map));
  const auto text = record.map_.Read();
  if (!text.ok()) return text.status();
  if (!record.data_.ParseFromString(*text)) {
    return absl::FailedPreconditionError(absl::StrCat(PathOf(pin_folder), " cannot be read"));
  }
  return record;
}

absl::Status InstanceRecord::Save() { return map_.Write(data_.SerializeAsString()); }

absl::StatusOr<bool> InstanceRecord::RestorePin(const std::string& pin_folder) const {
  return map_.RestorePin(PathOf(pin_folder));
}

uint64_t NetworkNamespace() {
  struct stat info {};
  return stat("/proc/thread-self/ns/net", &info) == 0 ? info.st_ino : 0;
}

}  // namespace hedgerow
