// SPDX-License-Identifier: Apache-2.0
//
// A simulated client of the memcached front end: without a session, its requests are known by its address,
// their frame ids and their bytes, for as long as the window is (ADR 0014). It sends copies to several nodes as
// the proxy would, and repeats itself within what the window allows; what it saw goes into the history. Some
// count their frame ids up, but for one item that they set to one of two values in turn, always with the same
// id; others use one id for everything, as simple clients do, and never say the same twice. A client that uses
// an id again waits until the copies of its former request are off the wire, though perhaps not out of some
// node's socket.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cluster/kv/request_router.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class MemcachedClient {
 public:
  MemcachedClient(World& world, uint64_t address, bool one_frame_id)
      : world_(world), address_(address), one_frame_id_(one_frame_id) {}

  void Start();
  void Stop() { stopped_ = true; }
  void ArriveAnswer(const kv::Answer& answer);

 private:
  enum class Kind : uint8_t {
    kAddCounter,
    kIncrement,
    kReadCounter,
    kSet,
    kGet,
    kCas,
    kReadCas,
    kSetBrief,
    kGetBrief,
    kToggle,
    kReadToggle
  };

  struct Operation {
    Kind kind = Kind::kGet;
    std::string key;
    kv::Request request;
    uint64_t invoked_ns = 0;
    uint64_t give_up_ns = 0;
    uint64_t resend_until_ns = 0;
    uint64_t refused_until_ns = 0;  // it is sent again then: one copy for all refusals, or duplicates would multiply
    size_t record = 0;              // in the history
    uint64_t value = 0;             // stored
  };
  // An item with an end: its writer alone knows when it must be there, and when it has been gone.
  struct Brief {
    uint64_t number = 0;              // of its key: a new one for each
    uint64_t known_ns = UINT64_MAX;   // since when it is known to be stored
    uint64_t must_live_ns = 0;        // until then
    uint64_t missed_ns = UINT64_MAX;  // since when it is known to have ended
  };

  // The id that is used again and again.
  struct Reuse {
    bool under_way = false;
    uint64_t sent_ns = 0;         // the last copy of the last request
    uint64_t rests_until_ns = 0;  // no other one before that
  };
  // The item that is set with it. Its writer alone knows what it must hold.
  struct Toggle {
    uint64_t sets = 0;
    uint64_t value = 0;     // 0: not known
    uint64_t known_ns = 0;  // since when it is
  };

  std::string BriefKey() const;
  bool ReusesId(const Operation& operation) const;
  bool MayReuseId() const;
  void RestId();
  std::string ToggleKey() const { return "memcached-toggle" + std::to_string(address_); }

  void Act();
  Kind DrawKind();
  void Prepare(Operation& operation);
  kv::ItemOperation Write(const Operation& operation, kv::ItemVerb verb);
  void Send(uint64_t request);
  void Retry(uint64_t request);
  void Answered(Operation& operation, const kv::Answer& answer);
  void Stored(Operation& operation, const kv::Result& result);
  void Found(Operation& operation, const kv::Item* item);
  void FoundToggle(const Operation& operation, uint64_t value);

  World& world_;
  uint64_t address_;
  bool one_frame_id_;
  bool stopped_ = false;
  bool has_counter_ = false;
  uint64_t next_request_ = 1;
  std::map<uint64_t, Operation> operations_;  // without an answer, by request
  std::map<uint64_t, kv::Result> answered_;   // to compare with what else comes
  std::map<std::string, uint64_t> uniques_;   // as last seen
  Brief brief_;
  Reuse reuse_;
  Toggle toggle_;
};

}  // namespace hedgerow::sim
