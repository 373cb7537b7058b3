// SPDX-License-Identifier: Apache-2.0
//
// The supervisor of a group whose sockets are a running daemon's (`hedgerow steer adopt`). It starts no worker and ends
// none: it steers, follows the daemon's processes, and gives the kernel's own spreading back when it ends. Everything
// runs on the event loop's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "steer/adopt/adopted_slots.h"
#include "steer/adopt/adopted_sockets.h"
#include "steer/api/record.pb.h"
#include "steer/group.h"
#include "steer/settings.h"

namespace hedgerow::steer {

class AdoptedGroup final : public Group {
 public:
  // Before the loop runs. `search.transports` empty: those that the daemon has. On an error nothing has changed.
  static absl::StatusOr<std::unique_ptr<AdoptedGroup>> Start(EventLoop* loop, const Settings& settings,
                                                             const SocketSearch& search);
  // After the loop's end: the programs are detached from the daemon's sockets.
  ~AdoptedGroup() override;

  void BeginStop() override;

  absl::StatusOr<v1::Change> Resize(uint32_t workers) override;
  absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) override;
  absl::StatusOr<v1::Group> Reload(std::optional<uint32_t> slot) override;

 private:
  AdoptedGroup(EventLoop* loop, const Settings& settings) : Group(loop, settings) {}

  absl::Status Adopt(SocketSearch search);
  absl::Status Begin(const SocketSearch& search, const AdoptedWorkers& found);
  absl::StatusOr<bool> Resume(const v1::Record& record, const SocketSearch& search, const AdoptedWorkers& found);
  void Tick();

  const char* mode() const override { return "adopt"; }
  std::vector<Slot*> Slots() override;
  void WithSocket(const Slot& slot, Transport transport, const std::function<void(int)>& visit) const override;
  void Record(v1::Record& record) const override;
  std::vector<std::string> Problems() const override { return slots_->problems(); }

  std::unique_ptr<AdoptedSlots> slots_;
  bool remove_at_end_ = false;
  int timer_ = -1;
};

}  // namespace hedgerow::steer
