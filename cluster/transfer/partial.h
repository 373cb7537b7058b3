// SPDX-License-Identifier: Apache-2.0
//
// What has arrived of a snapshot's file, beside the snapshots and under another name. Used by the receiver.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/api/transfer.pb.h"
#include "cluster/raft/types.h"
#include "net/unique_fd.h"
#include "cluster/storage/snapshot_folder.h"

namespace hedgerow::transfer {

class Partial {
 public:
  // Sets the room for all of it aside. ResourceExhausted: there is none.
  static absl::StatusOr<std::unique_ptr<Partial>> Begin(const storage::SnapshotFolder& folder, raft::NodeId from,
                                                        const v1::Offer& offer);
  // What was not published goes.
  ~Partial();
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  // It is of the same file: it goes on with what is here. Another term may offer it.
  bool IsOf(raft::NodeId from, const v1::Offer& offer) const;
  absl::Status Append(std::string_view bytes);
  // All is there. DataLoss: it is not what was offered.
  absl::Status Finish();

  raft::NodeId from() const { return from_; }
  raft::EntryId last() const;
  uint64_t offset() const { return offset_; }
  uint64_t size_bytes() const { return offer_.size_bytes(); }
  const std::string& path() const { return path_; }
  // Its name is another's now.
  void Published() { path_.clear(); }

 private:
  Partial(raft::NodeId from, v1::Offer offer) : from_(from), offer_(std::move(offer)) {}

  const raft::NodeId from_;
  const v1::Offer offer_;
  std::string path_;
  net::UniqueFd file_;
  uint64_t offset_ = 0;
  uint64_t unsynced_bytes_ = 0;
  uint32_t checksum_ = 0;
};

}  // namespace hedgerow::transfer
