// SPDX-License-Identifier: Apache-2.0
//
// The supervisor of a group that makes its own sockets (`hedgerow steer run`): makes them or takes them over from a
// dead supervisor, starts workers, follows them, and changes the table. Everything runs on the event loop's thread.
#pragma once

#include <cstdint>
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
#include "steer/group_watch.h"
#include "steer/notify_socket.h"
#include "steer/settings.h"
#include "steer/slot.h"
#include "steer/worker.h"

namespace hedgerow::steer {

class Supervisor final : public Group {
 public:
  // Before the loop runs; the caller holds the group's lock. A failed start removes what it made; a group that it took
  // over stays.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(EventLoop* loop, const Settings& settings,
                                                           bool mounted_bpffs);
  // After BeginStop() and the loop's end, it removes sockets, pins and folder.
  ~Supervisor() override;

  // Workers are asked to end; the loop stops when the last one has. Again: they are killed.
  void BeginStop() override;

  absl::StatusOr<v1::Change> Resize(uint32_t workers) override;
  absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) override;
  absl::StatusOr<v1::Group> Reload(std::optional<uint32_t> slot) override;
  absl::StatusOr<v1::Group> Reattach() override;

 private:
  Supervisor(EventLoop* loop, const Settings& settings, Launcher launcher, bool mounted_bpffs)
      : Group(loop, settings, mounted_bpffs), launcher_(std::move(launcher)) {}

  // supervisor_start.cc
  absl::Status Make();
  absl::Status MakeSlots();
  using Stored = std::map<uint64_t, net::UniqueFd>;
  absl::Status TakeOver(const v1::Record& record, Stored stored);
  absl::Status TakeSlots(const v1::Record& record, Stored& stored);
  absl::Status TakeSockets(Stored& stored);
  void RemoveSockets(int place);
  std::set<uint32_t> InodesOf(const Slot& slot) const;
  void FindUnrecordedWorker(Slot& slot);
  absl::Status MakeSinks();
  absl::Status BeginWatching();
  absl::StatusOr<int> AddSlot(int number, Role role);
  absl::StatusOr<net::UniqueFd> NewSocket(Transport transport);
  absl::Status FillSlot(Slot& slot);
  void RemoveEverything();

  // supervisor.cc: workers and timers
  void StartWorker(Slot& slot);
  void MendListener(Slot& slot);
  absl::Status MendUdp(Slot& slot);
  void EndLeftBehind(const Slot& slot, const Process& worker, bool group_ended);
  void ForgiveOwnPause(int64_t now);
  void ReapOrphans();
  void Follow(Slot& slot);
  bool OnExit(int place);
  void OnNotice(const Notice& notice);
  void Terminate(Slot& slot);
  Slot* SlotOfProcess(pid_t pid);
  void Tick();
  void TickSlot(Slot& slot, int64_t now);
  void TickFormer(Slot& slot, int64_t now);
  void EndFormer(int place);
  void StartNext();
  void TickNext(Slot& slot, int64_t now);
  void FailReload(Slot& slot, const std::string& why);
  bool Proven(const Slot& slot, int64_t now) const;
  void LookAround();
  std::vector<int> FdsOf(Transport transport) const;
  bool Busy() const;
  void Pace();

  // The pair of sockets that a slot's sources meet.
  Slot& Serving(int number);
  const Slot& Serving(int number) const { return const_cast<Supervisor*>(this)->Serving(number); }
  bool Has(Role role) const;

  // What a Group asks for.
  const char* mode() const override { return "run"; }
  std::map<int, Share*> Shares() override;
  std::string WorkersText() override;
  bool IsEmpty(int slot, int64_t now_ns) const override;
  v1::Slot ShowWorker(int slot) const override;
  v1::RecordedSlot RecordWorker(int slot) const override;
  void Record(v1::Record& record) const override;
  std::vector<std::string> Problems() const override;
  void ShowFormer(v1::Group& group) const override;
  bool HasFormer() const override { return Has(Role::kFormer); }
  v1::Slot ShowPair(const Slot& slot) const;
  v1::RecordedSlot RecordPair(const Slot& slot) const;
  void TableChanged() override { Pace(); }
  std::string StateOf(const Slot& slot) const;

  Launcher launcher_;
  bool remove_at_end_ = false;  // false: the group was taken over, and stays if the start fails
  std::optional<NotifySocket> notify_;
  std::optional<GroupWatch> watch_;
  std::map<int, Slot> slots_;   // by place
  std::vector<int> to_reload_;  // slots, one after the other
  std::string reload_problem_;
  bool stopping_ = false;
  int slow_timer_ = -1;
  int fast_timer_ = -1;
  int64_t ticked_ns_ = 0;
  int64_t next_look_ns_ = 0;
};

}  // namespace hedgerow::steer
