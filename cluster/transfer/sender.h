// SPDX-License-Identifier: Apache-2.0
//
// Sends snapshots to followers, each in a thread of its own, so that a slow one delays no other. A connection
// that breaks is made again and goes on where the follower is; a transfer that gets nowhere is given up. Used
// by a node's loop (cluster/node/snapshots).

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cluster/raft/types.h"
#include "cluster/transfer/peer_tls.h"
#include "cluster/transfer/shared_keys.h"

namespace hedgerow::transfer {

struct SenderOptions {
  uint64_t cluster_id = 0;
  const SharedKeys* keys = nullptr;  // outlives this
  raft::NodeId self{};
  uint64_t incarnation = 0;       // of it
  uint64_t bytes_per_second = 0;  // to each follower; 0: no bound
  // After a try that failed, twice as long after the next, and so on; also before a failure is reported, since the
  // node may ask again at once.
  absl::Duration retry = absl::Seconds(1);
  int tries_max = 4;             // in a row that got nowhere
  const PeerTls* tls = nullptr;  // outlives this; null: none is used
};

struct SnapshotOffer {
  raft::NodeId to{};
  std::string address;  // "10.0.0.2:4802"
  raft::Term term{};    // that this node leads
  raft::EntryId last{};
  std::string path;  // of the file; a failure if it is gone by the time that it is opened
};

struct SenderStatistics {
  uint64_t begun = 0;
  uint64_t delivered = 0;
  uint64_t failed = 0;
  uint64_t resumed = 0;  // connections that went on in the midst of a file
  uint64_t sent_bytes = 0;
};

// Of one that is under way.
struct Sending {
  raft::NodeId to{};
  raft::LogIndex index{};
  uint64_t sent_bytes = 0;                        // of the file, on this connection or an earlier one
  uint64_t size_bytes = 0;                        // 0: not known yet
  std::chrono::steady_clock::time_point moved{};  // when the follower last took some of it
  std::string trouble{};  // why the last try failed; empty: it did not, or has got further since
  bool all_sent = false;  // its verdict is awaited: it checks what it has, and makes a state of it
};
// Worth waiting for. A follower that has everything sends nothing while it makes a state of millions of entries;
// one that is gone by then is found out by the connection.
bool MakesProgress(const Sending& sending, std::chrono::steady_clock::time_point now);

class Sender {
 public:
  // Called by a transfer's thread, at its end. DataLoss: the file is damaged.
  using Ended = std::function<void(raft::NodeId to, raft::LogIndex index, const absl::Status& status)>;

  Sender(SenderOptions options, Ended ended);
  // Breaks off what is under way, and waits for it.
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // The owner's thread: these four. None of them waits.
  //
  // What is under way to the same follower is broken off first, without a report of its end.
  void Send(SnapshotOffer offer);
  // Breaks off what is under way to one, or all, without a report of its end.
  void StopSendingTo(raft::NodeId to);
  void StopAll();
  std::vector<Sending> UnderWay() const;

  // Any thread.
  SenderStatistics statistics() const;

 private:
  struct Transfer;
  class Call;

  void Run(Transfer& transfer);
  absl::Status SendPatiently(Transfer& transfer);
  void Stop(std::unique_ptr<Transfer> transfer);
  void Reap();
  void Count(uint64_t SenderStatistics::*what, uint64_t more = 1);

  const SenderOptions options_;
  const Ended ended_;
  std::map<raft::NodeId, std::unique_ptr<Transfer>> transfers_;  // the owner's, like the next one
  std::vector<std::unique_ptr<Transfer>> stopping_;

  mutable absl::Mutex mutex_;
  SenderStatistics statistics_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::transfer
