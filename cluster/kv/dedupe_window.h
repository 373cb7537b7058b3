// SPDX-License-Identifier: Apache-2.0
//
// At most once within a window, for clients that have no session: a request is known again for a stated span of
// committed time. It is weaker than a session, so the nodes and proxies that forward copies forward none that is older
// than the window. Part of the replicated state.
//
// A memcached client names its requests by its address and a frame id, and uses the ids again; what tells two requests
// of one name apart is a fingerprint of their bytes (RequestKey::c). Another request under a name supersedes the one
// before: when that comes again, it is a new request, unless it reached the cluster before the one that superseded it
// (ADR 0030).
//
// The window may change (settings.h). A shorter one holds at once, for all requests. A longer one holds for the
// requests that are recorded from kRaiseDelay_ns after the change on: by then the front ends have taken back
// the rate at which a client's frame ids come round, and what was recorded before stays known no longer than
// the window that this rate was made for.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <tuple>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/memory.h"
#include "cluster/kv/settings.h"

namespace hedgerow::kv {

class DedupeWindow {
 public:
  enum class Verdict : uint8_t {
    kNew,         // to be done now
    kKnown,       // done before; Answer() has what was said
    kSuperseded,  // it reached the cluster before another request took its name: never to be done any more
  };

  static constexpr uint64_t kRaiseDelay_ns = 2'000'000'000;
  // Windows in force at a time, for requests of different age.
  static constexpr size_t kStepsMax = 8;

  explicit DedupeWindow(const WindowLimits& limits)
      : requests_max_(limits.requests_max), steps_(1, WindowStep{.from_ns = 0, .window_ns = limits.window_ns}) {}

  // False: it has been raised kStepsMax times within the window; later it may be raised again.
  bool MayTake(const WindowLimits& limits) const {
    return limits.window_ns <= steps_.back().window_ns || steps_.size() < kStepsMax;
  }
  void SetLimits(const WindowLimits& limits, uint64_t now_ns);

  bool full() const { return answers_.size() >= requests_max_; }
  // `origin_ns`: when the request reached the cluster, in committed time. A client that has the answer to one request
  // before it sends the next under the same name sends it after the first was stamped; a copy of the first was there
  // before. A request that is not known, and that another one overtook on its way, is not done after that one: its
  // client has gone on, and a copy of the newer request would no longer be known.
  Verdict Judge(const RequestKey& key, uint64_t origin_ns) const;
  // What was said to the request, whether or not another has taken its name since.
  const Result* Answer(const RequestKey& key) const;
  // The same where a name is used once, for one request and its CANCEL: another request's answer is kAnotherRequest.
  const Result* AnswerOnce(const RequestKey& key) const;
  // In place of what is known under this key, if anything is.
  void Record(const RequestKey& key, Result result, uint64_t now_ns, uint64_t origin_ns);
  void Expire(uint64_t now_ns);

  size_t size() const { return answers_.size(); }
  uint64_t bytes() const { return bytes_; }      // memory.h
  uint64_t content() const { return content_; }  // content_hash.h

  const WindowSteps& steps() const { return steps_; }
  void BeginSnapshot(SnapshotWriter* writer);
  // False: everything is written down, and the snapshot has ended here.
  bool ContinueSnapshot();
  void AbandonSnapshot();
  // False: steps that no window has.
  bool Restore(const WindowLimits& limits, WindowSteps steps);

 private:
  struct Seen {
    uint64_t time_ns = 0;
    uint64_t origin_ns = 0;
    uint64_t number = 0;  // grows along by_time_
    RequestKey key{};
    Result result{};
    uint64_t replaced_in = 0;  // the snapshot that is yet to write it down, though it is known no more; 0: it is known
  };
  using Place = std::list<Seen>::iterator;
  // The requests of one name stand side by side.
  struct ByName {
    static auto Words(const RequestKey& key) { return std::tie(key.kind, key.a, key.b, key.d, key.c); }
    bool operator()(const RequestKey& one, const RequestKey& other) const { return Words(one) < Words(other); }
  };

  uint64_t WindowAt_ns(uint64_t time_ns) const;
  bool SharesName(std::map<RequestKey, Place, ByName>::iterator answer);
  const Seen* NewestOfName(const RequestKey& key) const;
  void Remove(Place place);
  bool IsUnsaved(const Seen& seen) const;
  static uint64_t HashOf(const Seen& seen);
  void Save();

  uint64_t requests_max_;
  uint64_t content_ = 0;  // of what is known
  uint64_t bytes_ = 0;    // the same
  // Never empty, in the order of their beginnings, each longer than the one before. So requests end in the order
  // in which they came.
  WindowSteps steps_;
  std::list<Seen> by_time_;
  std::map<RequestKey, Place, ByName> answers_;
  std::map<RequestKey, Place> newest_;  // by name (a key without fingerprint), of those that had more than one request
  uint64_t last_number_ = 0;

  // An incremental snapshot walks from the front. What it has not come to stays there, until it is written down.
  SnapshotWriter* writer_ = nullptr;
  uint64_t snapshot_ = 0;
  Place next_{};               // the next to be written down, if any is
  size_t unsaved_ = 0;         // so many are, from there on
  uint64_t snapshot_end_ = 0;  // the number of the last of them
};

}  // namespace hedgerow::kv
