// SPDX-License-Identifier: Apache-2.0
//
// A simulated client: sends each request to one node, perhaps a copy to another (as the proxy would), again
// when no answer comes, and gives up in the end; what it saw goes into the history. With a session it writes
// exactly once; a windowed client has none and is bound to the window's terms.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "cluster/kv/request_router.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

// Without faults, whatever was before: a cluster that is overloaded by what its last storm left is none. It is
// fair when the last late datagram has arrived: until then followers may hear from a leader that has stepped
// down, and do not vote.
constexpr uint64_t kAnsweredWithin_ns = 10 * kSecond;
inline uint64_t AnsweredAfterStorm_ns(const Plan& plan) {
  return kAnsweredWithin_ns + (plan.network.late_ppm > 0 ? plan.network.late_max_ns : 0);
}

class Client {
 public:
  Client(World& world, uint64_t address, bool windowed) : world_(world), address_(address), windowed_(windowed) {}

  void Start();
  // Begins nothing more. What it still waits for through its session must be answered within
  // AnsweredAfterStorm_ns.
  void Stop();
  bool idle() const { return operations_.empty(); }
  void ArriveAnswer(const kv::Answer& answer);
  const kv::SessionName& session() const { return session_; }
  uint64_t next_seq() const { return next_seq_; }

 private:
  enum class Kind : uint8_t {
    kOpen,
    kIncrement,
    kReadCounter,
    kPut,
    kReadRegister,
    kReplace,
    kReadReplaced,
    kTransfer
  };

  struct Operation {
    Kind kind = Kind::kIncrement;
    std::string key;
    kv::Request request;
    uint64_t invoked_ns = 0;
    uint64_t give_up_ns = 0;
    uint64_t resend_until_ns = 0;
    uint64_t refused_until_ns = 0;  // it is sent again then: one copy for all refusals, or duplicates would multiply
    size_t record = 0;              // in the history
    uint64_t value = 0;             // written
    uint64_t expected = 0;
    bool overloaded = false;  // it was refused at least once
  };

  void Act();
  void Begin();
  Kind DrawKind();
  std::string Padding();
  void Prepare(Operation& operation);
  void Send(uint64_t request);
  void SendAgainLater(uint64_t request, uint64_t delay_ns);
  void Retry(uint64_t request);
  void Complete(Operation& operation, const kv::Answer& answer);
  void Succeeded(Operation& operation, const kv::Result& result);
  void Read(Operation& operation, const kv::Answer& answer);
  void SendOther(uint64_t request);
  void OtherAnswered(const kv::Answer& answer);
  void SessionLost(const Operation& operation);
  uint64_t LowestUnanswered() const;

  World& world_;
  uint64_t address_;
  bool windowed_;
  bool stopped_ = false;
  bool asleep_ = false;
  uint64_t next_request_ = 1;
  uint64_t next_value_ = 1;
  std::map<uint64_t, Operation> operations_;  // without an answer, by request
  std::map<uint64_t, kv::Result> answered_;   // to compare with what else comes
  std::set<uint64_t> others_done_;            // requests whose number another one has taken
  std::map<std::string, uint64_t> known_;     // what replaced keys were last seen to hold

  kv::SessionName session_{};
  bool wrote_ = false;  // and knows it: such a session is not ended for another one
  bool opening_ = false;
  uint64_t next_seq_ = 1;
  uint64_t session_active_ns_ = 0;  // invocation of the last write that was answered
};

}  // namespace hedgerow::sim
