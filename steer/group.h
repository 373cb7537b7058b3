// SPDX-License-Identifier: Apache-2.0
//
// What groups have in common, whether the supervisor made their sockets (supervisor.h) or a daemon did
// (adopt/adopted_group.h): the kernel part, the table and its changes, the record, the report, and the handling of
// empty slots. Everything runs on the event loop's thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "operate/event_loop.h"
#include "steer/api/record.pb.h"
#include "steer/change.h"
#include "steer/control.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"
#include "steer/slot.h"

namespace hedgerow::steer {

class Group : public Control {
 public:
  // Begins the shutdown, at whose end the loop stops. A second call shortens it.
  virtual void BeginStop() = 0;
  // Further problems for every report. What it refers to must outlive the loop's run.
  void AlsoReport(std::function<std::vector<std::string>()> problems) { also_report_ = std::move(problems); }
  // "group port-2055: 192.0.2.1:2055 (udp, tcp), 4 workers"
  std::string Text();

  absl::StatusOr<v1::Group> Show(bool buckets) final;
  absl::StatusOr<v1::Change> SetWeights(const std::vector<double>& weights) final;
  absl::StatusOr<v1::Change> Drain(uint32_t slot, bool drain) final;
  absl::StatusOr<v1::StopReply> Stop() final;

 protected:
  Group(EventLoop* loop, const Settings& settings, bool mounted_bpffs)
      : loop_(loop), settings_(settings), mounted_bpffs_(mounted_bpffs) {}

  virtual const char* mode() const = 0;  // "run" or "adopt"
  virtual std::map<int, Share*> Shares() = 0;
  // "4 workers"
  virtual std::string WorkersText() = 0;
  // Whether the slot's sources go elsewhere now.
  virtual bool IsEmpty(int slot, int64_t now_ns) const = 0;
  // The slot's worker, its state, and what its sockets hold.
  virtual v1::Slot ShowWorker(int slot) const = 0;
  virtual v1::RecordedSlot RecordWorker(int slot) const = 0;
  // What the record has beside its slots.
  virtual void Record(v1::Record& /*record*/) const {}
  virtual std::vector<std::string> Problems() const = 0;
  // Workers of former and next generations, and whether a reload is under way.
  virtual void ShowFormer(v1::Group& /*group*/) const {}
  virtual bool HasFormer() const { return false; }
  // The table has changed: sources may have been pinned.
  virtual void TableChanged() {}

  // The folder for sockets and record, and the kernel part with its pins.
  absl::Status MakeFolder() const;
  absl::Status CreateKernel(const Weights& weights);
  // The first property that a takeover cannot change and that differs from `settings_`: "address (192.0.2.1:2055)";
  // empty: nothing.
  absl::StatusOr<std::string> Difference(const v1::Record& record, const KernelGroup& kernel) const;
  absl::Status OpenTable();
  void RemoveKernel();

  // Writes the record. A failure is a problem of the report, and the group goes on.
  absl::Status Save();
  void ApplyEmpty();
  // Ends pins of closed connections: every 250 ms while there are pins, less often where a dump takes long. Ends a
  // change, after which flows go by the table alone.
  void PollPins(int64_t now_ns);
  Weights WeightsNow();
  int CountWorkers();
  absl::StatusOr<Share*> FindShare(uint32_t slot);
  // Makes the table follow the shares. `undo` restores the shares where the change is refused.
  absl::StatusOr<v1::Change> ChangeTable(const std::function<void()>& undo);
  absl::Status ShowSlots(google::protobuf::RepeatedPtrField<v1::Slot>* slots);
  v1::Slot ShowSlot(int slot, const Share& share, const GroupCounts& counts) const;

  EventLoop* loop_;
  Settings settings_;
  bool mounted_bpffs_;
  std::unique_ptr<KernelGroup> kernel_;
  std::optional<GroupTable> table_;
  std::array<net::UniqueFd, 2> sinks_{};  // by Transport

 private:
  std::string table_problem_{};
  std::string record_problem_{};
  std::function<std::vector<std::string>()> also_report_{};
  int64_t next_pins_ns_ = 0;
  int64_t moved_until_ns_ = 0;  // flows stay where they began before buckets moved
};

}  // namespace hedgerow::steer
