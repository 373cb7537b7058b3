// SPDX-License-Identifier: Apache-2.0
//
// The supervisor of a group whose sockets are a running daemon's (`hedgerow steer adopt`). It starts no worker and ends none: it
// steers, follows the daemon's processes, and gives the kernel's own spreading back when it ends. Everything runs on the event
// loop's thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "steer/adopt/adopted_slots.h"
#include "steer/adopt/adopted_sockets.h"
#include "steer/api/record.pb.h"
#include "steer/change.h"
#include "steer/control.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"

namespace hedgerow::steer {

class AdoptedGroup final : public Control {
 public:
  // Before the loop runs. `search.transports` empty: those that the daemon has. On an error nothing has changed.
  static absl::StatusOr<std::unique_ptr<AdoptedGroup>> Start(EventLoop* loop, const Settings& settings, const SocketSearch& search,
                                                             bool mounted_bpffs);
  // After the loop's end: the daemon's sockets are as they were before.
  ~AdoptedGroup() override;

  void BeginStop();
  // "group port-2055: 192.0.2.1:2055 (udp, tcp), workers 12 (nsd), 13 (nsd)"
  std::string Text() const;

  absl::StatusOr<v1::Group> Show(bool buckets) override;
  absl::StatusOr<v1::Change> Resize(uint32_t workers) override;
  absl::StatusOr<v1::Change> SetWeights(const std::vector<double>& weights) override;
  absl::StatusOr<v1::Change> Drain(uint32_t slot, bool drain) override;
  absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) override;
  absl::StatusOr<v1::Group> Reattach() override;
  absl::StatusOr<v1::StopReply> Stop() override;

 private:
  // What this group adds to an AdoptedSlot.
  struct Share {
    double weight = 1;
    bool drained = false;
    bool empty = false;         // as the table has it
    int64_t down_since_ns = 0;  // 0: it serves
    int64_t since_ns = 0;       // in its state
  };

  AdoptedGroup(EventLoop* loop, const Settings& settings, bool mounted_bpffs)
      : loop_(loop), settings_(settings), mounted_bpffs_(mounted_bpffs) {}

  absl::Status Adopt(SocketSearch search);
  absl::Status Begin(const SocketSearch& search, const AdoptedWorkers& found);
  absl::StatusOr<bool> Resume(const v1::Record& record, const SocketSearch& search, const AdoptedWorkers& found);
  absl::Status MakeSinks();
  absl::Status OpenTable();
  void Tick();
  void ApplyEmpty();
  void Save();
  GroupTable::Policy policy() const { return {settings_.empty, -1}; }
  bool IsDown(size_t slot) const;
  Weights WeightsNow() const;
  absl::StatusOr<v1::Change> ChangeWeights(const std::function<void()>& undo);
  absl::Status CheckSlot(uint32_t slot) const;
  v1::Slot ShowSlot(size_t number, const GroupCounts& counts) const;

  EventLoop* loop_;
  Settings settings_;
  bool mounted_bpffs_;
  std::unique_ptr<KernelGroup> kernel_;
  std::unique_ptr<AdoptedSlots> slots_;
  std::vector<Share> shares_{};
  std::optional<GroupTable> table_;
  std::array<net::UniqueFd, 2> sinks_{};  // by Transport
  std::string table_problem_{};
  std::vector<std::string> problems_{};  // of the last tick
  uint32_t uid_ = 0;                      // that the daemon's sockets belong to
  bool remove_at_end_ = false;
  int timer_ = -1;
  int64_t next_pins_ns_ = 0;
};

}  // namespace hedgerow::steer
