// SPDX-License-Identifier: Apache-2.0
//
// At most once within a window, for clients that have no session: a request is known again for a stated span of
// committed time. It is weaker than a session, and whoever forwards copies must see to it that none is older than the
// window. Part of the replicated state.
//
// A memcached client names its requests by its address and a frame id, and uses the ids again; what tells two requests of
// one name apart is a fingerprint of their bytes (RequestKey::c). Another request under a name supersedes the one before:
// when that comes again, it is a new request, unless it reached the cluster before the one that superseded it (ADR 0030).

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <tuple>

#include "cluster/kv/command.h"
#include "cluster/kv/cut.h"

namespace hedgerow::kv {

// Of a write without a session: longer than the longest patience of a client and of a proxy (a minute each, and copies of one
// request leave within it), what nodes may hold a copy for, and the wire. Its nonce is never used again, so a longer
// window costs memory alone.
struct WindowLimits {
  uint64_t window_ns = 70'000'000'000;
  size_t requests_max = 250'000;  // a full window refuses; to forget early would break the promise
};

class DedupeWindow {
 public:
  enum class Verdict : uint8_t {
    kNew,         // to be done now
    kKnown,       // done before; Answer() has what was said
    kSuperseded,  // a late copy of what was done before another request took its name: never to be done again
  };

  explicit DedupeWindow(WindowLimits limits) : limits_(limits) {}

  bool full() const { return answers_.size() >= limits_.requests_max; }
  // `origin_ns`: when the request reached the cluster, in committed time. A client that has the answer to one request
  // before it sends the next under the same name sends it after the first was stamped; a copy of the first was there before.
  Verdict Judge(const RequestKey& key, uint64_t origin_ns) const;
  // What was said to the request, whether or not another has taken its name since.
  const Result* Answer(const RequestKey& key) const;
  // In place of what is known under this key, if anything is.
  void Record(const RequestKey& key, Result result, uint64_t now_ns);
  void Expire(uint64_t now_ns);

  size_t size() const { return answers_.size(); }

  void BeginCut(CutWriter* writer);
  // False: everything is written down, and the cut has ended here.
  bool ContinueCut();
  void AbandonCut();

 private:
  struct Seen {
    uint64_t time_ns = 0;
    uint64_t number = 0;  // grows along by_time_
    RequestKey key{};
    Result result{};
    uint64_t replaced_in = 0;  // the cut that is yet to write it down, though it is known no more; 0: it is known
  };
  using Place = std::list<Seen>::iterator;
  // The requests of one name stand side by side.
  struct ByName {
    static auto Words(const RequestKey& key) { return std::tie(key.kind, key.a, key.b, key.d, key.c); }
    bool operator()(const RequestKey& one, const RequestKey& other) const { return Words(one) < Words(other); }
  };

  bool SharesName(std::map<RequestKey, Place, ByName>::iterator answer);
  const Seen& NewestOfName(const Seen& seen) const;
  void Remove(Place place);
  bool IsUnsaved(const Seen& seen) const;
  void Save();

  WindowLimits limits_;
  std::list<Seen> by_time_;
  std::map<RequestKey, Place, ByName> answers_;
  std::map<RequestKey, Place> newest_;  // by name (a key without fingerprint), of those that had more than one request
  uint64_t last_number_ = 0;

  // A cut walks from the front. What it has not come to stays there, until it is written down.
  CutWriter* writer_ = nullptr;
  uint64_t cut_ = 0;
  Place next_{};          // the next to be written down, if any is
  size_t unsaved_ = 0;    // so many are, from there on
  uint64_t cut_end_ = 0;  // the number of the last of them
};

}  // namespace hedgerow::kv
