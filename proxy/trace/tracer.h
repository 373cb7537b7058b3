// SPDX-License-Identifier: Apache-2.0
//
// The daemon's side of `hedgerow trace`: while a client listens, the kernel's ring is looked at every 50 ms on
// the event loop, the lease renewed, and the events handed to the client's thread; when the client is gone, so
// is all of it. Built by the administration service (proxy/admin/server.cc).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "net/steady_wait.h"
#include "proxy/data_plane/trace_source.h"
#include "operate/event_loop.h"

namespace hedgerow {

// How long the kernel goes on for a daemon that does not renew: a stopped or killed one.
inline constexpr absl::Duration kTraceLease = absl::Seconds(2);
inline constexpr absl::Duration kTraceTurn = absl::Milliseconds(50);
// A client that takes nothing for as long is not looking: its trace is ended.
inline constexpr absl::Duration kTracePatience = absl::Seconds(10);

// Events on their way from the loop to the client's thread. Bounded: what a slow client does not take in time
// is dropped and counted.
class TraceStream {
 public:
  static constexpr size_t kMaxEvents = 65'536;

  struct Batch {
    std::vector<hr_trace_event> events;
    TraceLoss loss;      // since the start
    bool ended = false;  // nothing comes after this
    std::string why;     // it ended before its client did
  };

  // The client's thread: waits until there is something, at most `timeout`.
  Batch Take(absl::Duration timeout);
  // From any thread: the client takes no further events.
  void Abandon();

 private:
  friend class Tracer;
  // The loop's.
  void Give(std::vector<hr_trace_event> events, const TraceLoss& kernel, absl::Time now);
  void End(const std::string& why);
  bool Abandoned() const;
  absl::Duration Waiting(absl::Time now) const;  // since when nothing was taken of what there is

  mutable absl::Mutex mutex_;
  net::SteadyCondVar came_;
  std::vector<hr_trace_event> events_ ABSL_GUARDED_BY(mutex_);
  TraceLoss kernel_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time waiting_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);
};

// On the loop's thread only, but for its end, which may come after the loop's.
class Tracer {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<TraceSource>>()>;

  explicit Tracer(EventLoop& loop, absl::Duration patience = kTracePatience) : loop_(loop), patience_(patience) {}
  ~Tracer() { Stop("the daemon is going down"); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // ResourceExhausted while another client traces: the kernel has one filter.
  absl::StatusOr<std::shared_ptr<TraceStream>> Start(const Open& open);
  // Ends the trace under way, if there is one.
  void Stop(const std::string& why);

 private:
  void Turn();

  EventLoop& loop_;
  const absl::Duration patience_;
  int timer_ = -1;  // the loop's, while stream_ is there
  std::unique_ptr<TraceSource> source_;
  std::shared_ptr<TraceStream> stream_;
};

}  // namespace hedgerow
