// SPDX-License-Identifier: Apache-2.0
//
// The supervisor of a group that makes its own sockets (`hedgerow steer run`): makes them or takes them over from a dead
// supervisor, starts workers, follows them, and changes the table. Everything runs on the event loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "steer/change.h"
#include "steer/control.h"
#include "steer/group_watch.h"
#include "steer/keeper.h"
#include "steer/kernel_group.h"
#include "steer/notify_socket.h"
#include "steer/settings.h"
#include "steer/slot.h"
#include "steer/worker.h"

namespace hedgerow::steer {

class Supervisor final : public Control {
 public:
  // Before the loop runs. The group's lock is the caller's. On an error nothing is left behind, unless it was there before.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(EventLoop* loop, const Settings& settings, bool mounted_bpffs);
  // After BeginStop() and the loop's end, everything is removed.
  ~Supervisor() override;

  // Workers are asked to end; the loop stops when the last one has. Again: they are killed.
  void BeginStop();
  // "group port-2055: 192.0.2.1:2055 (udp, tcp), 4 workers"
  std::string Text() const;

  absl::StatusOr<v1::Group> Show(bool buckets) override;
  absl::StatusOr<v1::Change> Resize(uint32_t workers) override;
  absl::StatusOr<v1::Change> SetWeights(const std::vector<double>& weights) override;
  absl::StatusOr<v1::Change> Drain(uint32_t slot, bool drain) override;
  absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) override;
  absl::StatusOr<v1::Group> Reattach() override;
  absl::StatusOr<v1::StopReply> Stop() override;

 private:
  Supervisor(EventLoop* loop, const Settings& settings, Launcher launcher, bool mounted_bpffs)
      : loop_(loop), settings_(settings), launcher_(std::move(launcher)), mounted_bpffs_(mounted_bpffs) {}

  // supervisor_start.cc
  absl::Status Make();
  absl::Status MakeSlots();
  absl::Status TakeOver(const v1::Record& record);
  absl::Status CheckSameGroup(const v1::Record& record) const;
  absl::Status TakeSlots(const v1::Record& record);
  std::set<uint32_t> InodesOf(const Slot& slot) const;
  void FindUnrecordedWorker(Slot& slot);
  absl::Status OpenTable();
  absl::Status BeginWatching();
  absl::Status AddSlot(int number, bool stand_in);
  absl::Status FillSlot(Slot& slot);
  absl::Status StartKeeper();
  void RemoveEverything();
  absl::Status Save();

  // supervisor.cc: workers, and what time brings
  void StartWorker(Slot& slot);
  void MendListener(Slot& slot);
  void MendUdp(Slot& slot);
  void EndLeftBehind(const Slot& slot, const v1::Process& worker);
  void ForgiveOwnPause(int64_t now);
  void ReapStrangers();
  void Follow(Slot& slot);
  void OnExit(int number);
  void OnNotice(const Notice& notice);
  void OnKeeperGone();
  void Terminate(Slot& slot);
  Slot* SlotOfProcess(pid_t pid);
  void Tick();
  void TickSlot(Slot& slot, int64_t now);
  void TickLeaving(Slot& slot, int64_t now);
  void EndLeaving(int number);
  void ApplyEmpty();
  bool Proven(const Slot& slot, int64_t now) const;
  void LookAround();
  std::vector<int> FdsOf(Transport transport) const;
  bool Busy() const;
  void Pace();

  // supervisor_change.cc
  absl::StatusOr<Slot*> FindSlot(uint32_t number);
  absl::StatusOr<v1::Change> ChangeWeights(const std::function<void()>& undo);
  Weights WeightsNow() const;
  int CountWorkers() const;  // slots but the stand-in and those that leave

  // supervisor_show.cc
  v1::Slot ShowSlot(const Slot& slot, const GroupCounts& counts) const;
  std::string StateOf(const Slot& slot) const;
  std::vector<std::string> Problems() const;

  EventLoop* loop_;
  Settings settings_;
  Launcher launcher_;
  bool mounted_bpffs_;
  bool remove_at_end_ = false;  // a group that was taken over stays where a start fails
  std::unique_ptr<KernelGroup> kernel_;
  std::optional<GroupTable> table_;
  std::optional<KeeperClient> keeper_;
  v1::Process keeper_process_{};
  std::optional<NotifySocket> notify_;
  std::optional<GroupWatch> watch_;
  std::array<net::UniqueFd, 2> sinks_{};  // by Transport
  std::map<int, Slot> slots_;
  std::string table_problem_{};
  std::string record_problem_{};
  bool stopping_ = false;
  int slow_timer_ = -1;
  int fast_timer_ = -1;
  int64_t ticked_ns_ = 0;
  int64_t next_pins_ns_ = 0;
  int64_t next_look_ns_ = 0;
};

}  // namespace hedgerow::steer
