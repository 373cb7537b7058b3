// SPDX-License-Identifier: Apache-2.0
//
// The kernel part without a kernel: the decisions of bpf/node/raft natively, on the core's own messages, with every
// lock boundary as a step of its own, so that tests and the simulator can put anything in between. One run is
// what the XDP program does with one datagram: reserve room in the ring, decide under the lock, submit or
// discard and answer.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/node/raft/take.h"
#include "cluster/offload/kernel.h"
#include "cluster/raft/message.h"

namespace hedgerow::offload {

class NativeKernel : public Kernel {
 public:
  struct Outcome {
    hr_node_verdict verdict = HR_NODE_PASS;
    hr_node_event event = HR_NODE_EVENT_PASSED_KIND;
    std::optional<raft::Message> answer{};
  };
  struct Done {
    raft::Message message;
    uint64_t arrived_ns = 0;
    Outcome outcome;
  };
  using WhenDone = std::function<void(Done done)>;

  // `members` by slot: the map of members.
  NativeKernel(raft::NodeId self, std::vector<raft::NodeId> members, size_t ring_records, WhenDone when_done)
      : self_(self), members_(std::move(members)), ring_records_(ring_records), when_done_(std::move(when_done)) {}

  // As the process writes it, at some moment before or after it opens the state for a new configuration.
  void SetMembers(std::vector<raft::NodeId> members) { members_ = std::move(members); }

  // A program begins to run.
  uint64_t Begin(uint64_t now_ns, raft::Message message);
  // Its next step; false: it has ended.
  bool Step(uint64_t run);
  std::vector<uint64_t> Running() const;

  // For an observer: called after each decision, before its record or answer can be seen.
  void WhenDecided(std::function<void(const Done&)> when_decided) { when_decided_ = std::move(when_decided); }
  // What other CPUs do meanwhile: called within each call of the process, once or more.
  void WhileProcessCalls(std::function<void()> other_cpus) { other_cpus_ = std::move(other_cpus); }
  // The flags that appends arrive with: HR_PEER_APPEND_MORE is stored, and not said.
  void DrawAppendFlags(std::function<uint32_t()> draw) { append_flags_ = std::move(draw); }
  // A process begins to read the ring where the last one had released it.
  void ProcessBegins() {
    taken_ = released_;
    awake_ = false;
  }
  // The host lost its power.
  void Wipe();

  void Control(hr_node_control& request) override;
  uint64_t ProducerPosition() override;
  uint64_t Take(uint64_t until, bool wait, std::vector<RingRecord>& records) override;
  void Release(uint64_t position) override;
  void SetAwake(bool awake) override;
  void SetSent(uint64_t index, uint64_t round) override {
    sent_index_ = index;
    sent_round_ = round;
  }
  uint64_t Moved() override;

  // For DecodeAppend.
  std::optional<raft::Message> Decode(std::string_view datagram) const;
  const hr_node_shared& shared() const { return shared_; }
  uint64_t unreleased() const { return ring_.size(); }

 private:
  struct Place {
    enum class State : uint8_t { kBusy, kSubmitted, kDiscarded };
    State state = State::kBusy;
    uint64_t run = 0;
    hr_node_record head{};
    raft::Message message{};
    std::string datagram{};  // its position, for Decode
  };
  struct Run {
    enum class Next : uint8_t { kReserve, kDecide, kEnd };
    Next next = Next::kReserve;
    Done done;
    uint64_t record_end = 0;  // of its place in the ring; 0: none
    size_t slot = 0;          // of the sender
    bool keeps_record = false;
  };

  void Reserve(uint64_t number, Run& run);
  void Decide(Run& run);
  void End(Run& run);
  Place& At(uint64_t end) { return ring_[end - 1 - released_]; }
  void OtherCpus() {
    if (other_cpus_) other_cpus_();
  }

  raft::NodeId self_;
  std::vector<raft::NodeId> members_;
  size_t ring_records_;
  WhenDone when_done_;
  std::function<void(const Done&)> when_decided_;
  std::function<void()> other_cpus_;
  std::function<uint32_t()> append_flags_;
  hr_node_shared shared_{};

  // Positions count records.
  std::deque<Place> ring_;  // from the one after released_
  uint64_t released_ = 0;
  uint64_t taken_ = 0;
  bool awake_ = false;
  uint64_t sent_index_ = 0;
  uint64_t sent_round_ = 0;
  uint64_t moved_ = 0;
  std::map<uint64_t, Run> runs_;
  uint64_t next_run_ = 1;
};

}  // namespace hedgerow::offload
