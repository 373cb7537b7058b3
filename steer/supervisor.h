// SPDX-License-Identifier: Apache-2.0
//
// The supervisor of a group that makes its own sockets (`hedgerow steer run`): makes them or takes them over from a
// dead supervisor, starts workers, follows them, and changes the table. Everything runs on the event loop's thread.
#pragma once

#include <array>
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
#include "steer/group.h"
#include "steer/settings.h"
#include "steer/slot.h"
#include "steer/worker.h"

namespace hedgerow::steer {

// Time for a former worker to read its queue and to answer, before it is asked to end.
inline constexpr int64_t kQueue_ns = 1'000'000'000;

class Supervisor final : public Group {
 public:
  // Before the loop runs; the caller holds the group's lock. A failed start removes what it made; a group that it took
  // over stays.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(EventLoop* loop, const Settings& settings);
  // After BeginStop() and the loop's end, it removes sockets, pins and folder.
  ~Supervisor() override;

  // Workers are asked to end; the loop stops when the last one has. Again: they are killed.
  void BeginStop() override;

  absl::StatusOr<v1::Change> Resize(uint32_t workers) override;
  absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) override;
  absl::StatusOr<v1::Group> Reload(std::optional<uint32_t> slot) override;

 private:
  Supervisor(EventLoop* loop, const Settings& settings, Launcher launcher)
      : Group(loop, settings), launcher_(std::move(launcher)) {}

  // supervisor_start.cc
  absl::Status Make();
  using Stored = std::map<uint64_t, net::UniqueFd>;
  absl::Status TakeOver(const v1::Record& record, Stored stored);
  absl::Status TakeSlots(const v1::Record& record, Stored& stored);
  absl::Status TakeSockets(Stored& stored);
  void RemoveSockets(int place);
  std::set<uint32_t> InodesOf(const MadeSlot& slot) const;
  void FindUnrecordedWorker(MadeSlot& slot);
  absl::Status BeginWatching();
  absl::StatusOr<int> AddSlot(int number, Role role);
  absl::StatusOr<net::UniqueFd> NewSocket(Transport transport);
  absl::Status FillSlot(MadeSlot& slot);
  void RemoveEverything();

  // supervisor.cc: workers and timers
  void StartWorker(MadeSlot& slot);
  void MendListener(MadeSlot& slot);
  absl::Status MendUdp(MadeSlot& slot);
  void EndLeftBehind(const MadeSlot& slot, const Process& worker, bool group_ended);
  void ForgiveOwnPause(int64_t now);
  void ReapOrphans();
  void Follow(MadeSlot& slot);
  bool OnExit(int place);
  void OnNotice(const Notice& notice);
  void Terminate(MadeSlot& slot);
  MadeSlot* SlotOfProcess(pid_t pid);
  void Tick();
  void TickSlot(MadeSlot& slot, int64_t now);
  void TickFormer(MadeSlot& slot, int64_t now);
  void EndFormer(int place);
  bool Busy() const;
  void Pace();

  // supervisor_change.cc
  void StartNext();
  void TickNext(MadeSlot& slot, int64_t now);
  static std::string NotReady(const MadeSlot& next);
  void FailReload(MadeSlot& slot, const std::string& why);

  // supervisor_show.cc
  MadeSlot& ServingSlot(int number);
  std::vector<int> FdsOf(Transport transport) const;
  void LookAround();
  std::string TakeoverOf(Transport transport, const std::vector<int>& sockets);
  std::string StrangersOf(Transport transport, const std::vector<int>& sockets);

  // What a Group asks for.
  const char* mode() const override { return "run"; }
  std::vector<Slot*> Slots() override;
  void WithSocket(const Slot& slot, Transport transport, const std::function<void(int)>& visit) const override;
  std::vector<std::string> Problems() const override;
  bool IsReloading() const override;
  void TableChanged() override { Pace(); }

  Launcher launcher_;
  bool remove_at_end_ = false;  // false: the group was taken over, and stays if the start fails
  std::optional<NotifySocket> notify_;
  std::map<int, MadeSlot> slots_;  // by place
  std::vector<int> to_reload_;     // slots, one after the other
  std::string reload_problem_;
  // By Transport: whether the kernel still runs the group's programs, and the sockets of others on the address.
  std::array<std::string, 2> takeovers_, strangers_;
  std::array<std::set<uint32_t>, 2> stranger_inodes_;  // described by strangers_: finding their processes takes long
  bool stopping_ = false;
  int slow_timer_ = -1;
  int fast_timer_ = -1;
  int64_t ticked_ns_ = 0;
  int64_t next_look_ns_ = 0;
};

}  // namespace hedgerow::steer
