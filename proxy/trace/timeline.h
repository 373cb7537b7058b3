// SPDX-License-Identifier: Apache-2.0
//
// From events, as they come, to requests with their whole way: which events belong together, when no more are
// to come, and how it ended. Pure but for what it holds; used by `hedgerow trace`. Times are CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proxy/api/trace.pb.h"

namespace hedgerow {

class Timelines {
 public:
  // How many requests are held at one time, finished ones that may still send something included. With more,
  // the oldest is given away as it is.
  static constexpr size_t kMaxHeld = 100'000;

  // Until the services are known every request waits its longest.
  void SetServices(const v1::TraceReply& reply);

  void Add(const v1::TraceEvent& event);
  // Those that have come to their end by `now_ns`, in the order in which they began.
  std::vector<v1::TracedRequest> TakeFinished(int64_t now_ns);
  // All, however far they are.
  std::vector<v1::TracedRequest> TakeAll();

 private:
  struct Held {
    v1::TracedRequest request;
    int64_t sent_ns = 0;
    int64_t last_ns = 0;
    bool taken = false;  // given away: what still comes is of no interest
  };
  struct Limits {
    int64_t deadline_ns = 60'000'000'000;
    int64_t retention_ns = 1'000'000'000;
  };

  static std::string IdOf(const v1::TraceEvent& event);
  Limits LimitsOf(const std::string& service) const;
  bool Finished(const Held& held, int64_t now_ns) const;
  v1::TracedRequest Finish(Held& held, bool complete);
  // In the order in which they began. `over`: no more is to come, as far as their states say.
  std::vector<v1::TracedRequest> FinishAll(std::vector<Held*>& all, bool over);

  std::map<std::string, Limits> services_;
  std::map<std::string, Held> held_;  // by IdOf
};

}  // namespace hedgerow
