// SPDX-License-Identifier: Apache-2.0
//
// What groups have in common, whether the supervisor made their sockets (supervisor.h) or a daemon did
// (adopt/adopted_group.h): the kernel part, the table and its changes, the record, the report, and the handling of
// empty slots. Everything runs on the event loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "operate/problem_log.h"
#include "steer/api/record.pb.h"
#include "steer/change.h"
#include "steer/control.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"
#include "steer/slot.h"

namespace hedgerow::steer {

// A worker that is waited for until it says READY=1 is given up after this, as systemd does at a start.
inline constexpr int64_t kReady_ns = 90'000'000'000;

class Group : public Control {
 public:
  // Begins the shutdown, at whose end the loop stops. A second call shortens it.
  virtual void BeginStop() = 0;
  // Further problems for every report. What it refers to must outlive the loop's run.
  void AlsoReport(std::function<std::vector<std::string>()> problems) { also_report_ = std::move(problems); }
  // "group port-2055: 192.0.2.1:2055 (udp, tcp), workers 4711 (nfcapd), 4712 (nfcapd)"
  std::string Text();

  absl::StatusOr<v1::Group> Show() final;
  absl::StatusOr<v1::Change> SetWeights(const std::vector<double>& weights) final;
  absl::StatusOr<v1::Change> Drain(uint32_t slot, bool drain) final;
  absl::StatusOr<v1::StopReply> Stop() final;

 protected:
  Group(EventLoop* loop, const Settings& settings) : loop_(loop), settings_(settings) {}

  virtual const char* mode() const = 0;  // "run" or "adopt"
  // Every pair of sockets, also those that do not serve.
  virtual std::vector<Slot*> Slots() = 0;
  // Calls `visit` with the slot's socket, where it has one.
  virtual void WithSocket(const Slot& slot, Transport transport, const std::function<void(int)>& visit) const = 0;
  virtual std::vector<std::string> Problems() const = 0;
  // What the record has beside its slots.
  virtual void Record(v1::Record& /*record*/) const {}
  virtual bool IsReloading() const { return false; }
  // The table has changed: sources may have been pinned.
  virtual void TableChanged() {}

  // The folder for sockets and record, and the kernel part with its pins.
  absl::Status MakeFolder() const;
  absl::Status CreateKernel(size_t workers);
  // The first property that a takeover cannot change and that differs from `settings_`: "address (192.0.2.1:2055)";
  // empty: nothing.
  absl::StatusOr<std::string> Difference(const v1::Record& record, const KernelGroup& kernel) const;
  absl::Status OpenTable();
  void RemoveKernel();

  // Writes the record. A failure is a problem of the report, and the group goes on.
  absl::Status Save();
  // Whether a new worker gets the sources of its empty slot back. Without this wait a worker that crashes at each start
  // would take them every time.
  bool IsProven(const Slot& slot, int64_t now_ns) const;
  // In each tick: slots that have become empty, or are served again.
  void ApplyEmpty();
  // Ends pins of closed connections: every 250 ms while there are pins, less often where a dump takes long. Ends a
  // change, after which flows go by the table alone.
  void PollPins(int64_t now_ns);
  // Once a second or more often.
  void LogProblems();
  Weights WeightsNow();
  // Those that serve, by number.
  std::map<int, Slot*> Serving();
  bool Has(Role role);
  absl::StatusOr<Slot*> FindSlot(uint32_t number);
  static absl::Status CheckWorkers(uint32_t workers);
  // Makes the table follow the shares. `undo` restores the shares where the change is refused.
  absl::StatusOr<v1::Change> ChangeTable(const std::function<void()>& undo);
  absl::Status ShowSlots(google::protobuf::RepeatedPtrField<v1::Slot>* slots);
  v1::Slot ShowSlot(const Slot& slot, const GroupCounts& counts) const;

  EventLoop* loop_;
  Settings settings_;
  std::unique_ptr<KernelGroup> kernel_;
  std::optional<GroupTable> table_;

 private:
  bool IsEmpty(const Slot& slot, int64_t now_ns) const;
  std::string StateOf(const Slot& slot) const;
  std::vector<std::string> AllProblems() const;

  std::string table_problem_{};
  std::string record_problem_{};
  operate::ProblemLog problem_log_{};
  std::function<std::vector<std::string>()> also_report_{};
  int64_t next_pins_ns_ = 0;
  int64_t moved_until_ns_ = 0;  // flows stay where they began before buckets moved
};

// What the record keeps of a slot.
Slot FromRecord(const v1::RecordedSlot& recorded);

}  // namespace hedgerow::steer
