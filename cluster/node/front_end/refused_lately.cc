// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/refused_lately.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"

namespace hedgerow::node {
namespace {

struct Words {
  const char* what;
  const char* advice;
};

Words WordsOf(RefusedLately::Why why) {
  using Why = RefusedLately::Why;
  switch (why) {
    case Why::kNotListed:
      return {"datagrams were dropped, because the client's address is in none of the networks of",
              "add it there if it is a client of yours"};
    case Why::kOpens:
      return {"OPENs were dropped, because an address or its network sent more than `sources.open_rate`",
              "many clients behind one address (NAT, a proxy) need a higher one"};
    case Why::kBytes:
      return {"answers were dropped, because a network gets no more than `sources.answer_rate`",
              "raise it, or list the network under `sources.trusted`"};
    case Why::kAnonymous:
      return {"requests without a key were denied, because `anonymous` is off", "give the client a name and a key"};
    case Why::kUnproven:
      return {"requests were denied, because this node knows no client of their name and key",
              "another key file on one side, or guesses"};
    case Why::kClock:
      return {"requests of named clients were denied, because their clocks and this node's differ by more than 20 s",
              "see to both clocks (`timedatectl`)"};
  }
  return {"requests were refused", ""};
}

}  // namespace

void RefusedLately::Note(Why why, const NetAddress& from, uint64_t now_ns) {
  Refused& refused = refused_[static_cast<size_t>(why)];
  if (refused.count == 0 || now_ns > refused.last_ns + kLately_ns) refused = {.since_ns = now_ns, .alone = true};
  ++refused.count;
  refused.last_ns = now_ns;
  refused.last = from;
}

void RefusedLately::Note(wire::HkvDenial why, const NetAddress& from, uint64_t now_ns) {
  switch (why) {
    case wire::HkvDenial::kAnonymous: return Note(Why::kAnonymous, from, now_ns);
    case wire::HkvDenial::kUnproven: return Note(Why::kUnproven, from, now_ns);
    case wire::HkvDenial::kClock: return Note(Why::kClock, from, now_ns);
    case wire::HkvDenial::kRead:
    case wire::HkvDenial::kWrite: return;  // the client is told which right it lacks
  }
}

std::string RefusedLately::Sentence(Why why, const Refused& refused, uint64_t now_ns) const {
  const Words words = WordsOf(why);
  return absl::StrCat(refused.count, " ", words.what,
                      why == Why::kNotListed ? absl::StrCat(" `", clients_key_, "`") : "", " (since ",
                      config::AgeText(static_cast<int64_t>(now_ns - std::min(now_ns, refused.since_ns))),
                      ", the last of ", refused.last.ToString(), "): ", words.advice);
}

void RefusedLately::Report(uint64_t now_ns, std::vector<std::string>& notes, std::vector<std::string>& problems) const {
  for (size_t i = 0; i < kWhys; ++i) {
    const Refused& refused = refused_[i];
    if (refused.count == 0 || now_ns > refused.last_ns + kLately_ns) continue;
    const Why why = static_cast<Why>(i);
    // One client's clock is its own affair; where none is accepted, it is this node's, as far as it can tell.
    (why == Why::kClock && refused.alone ? problems : notes).push_back(Sentence(why, refused, now_ns));
  }
}

}  // namespace hedgerow::node
