// SPDX-License-Identifier: Apache-2.0
//
// A server that is not what its program is there for: the page of metrics, the sockets of administration. Its
// port may be taken, its address may not be there yet, its certificate may be missing. None of this keeps the
// program from its work: it serves without, says so in `status`, the log and systemd's status line, and tries
// again until it can. All three daemons have theirs in one.

#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "net/steady_wait.h"
#include "operate/log.h"
#include "operate/service_manager.h"

namespace hedgerow::operate {

template <typename Server>
class Auxiliary {
 public:
  static constexpr absl::Duration kFirstWait = absl::Seconds(1);
  static constexpr absl::Duration kLongestWait = absl::Seconds(4);

  // `what` is the subject of the problem: "metrics". `start` is called now, and where it fails again on a
  // thread of its own, until it succeeds; what it refers to must outlive this. Null: nothing is to be served.
  Auxiliary(std::string what, std::function<absl::StatusOr<std::unique_ptr<Server>>()> start,
            absl::Duration first_wait = kFirstWait)
      : what_(std::move(what)), start_(std::move(start)) {
    if (!Try())
      thread_ = std::thread([this, first_wait] {
        for (absl::Duration wait = first_wait; !ended_.WaitFor(wait) && !Try();)
          wait = std::min(2 * wait, kLongestWait);
      });
  }
  ~Auxiliary() {
    ended_.Notify();
    if (thread_.joinable()) thread_.join();
  }

  // Any thread. Empty: it serves.
  std::string problem() const {
    const absl::MutexLock lock(&mutex_);
    if (status_.ok()) return "";
    return absl::StrCat(what_, ": ", status_.message(), "; the rest is served, and this is tried again every ",
                        absl::FormatDuration(kLongestWait));
  }
  absl::Status status() const {
    const absl::MutexLock lock(&mutex_);
    return status_;
  }
  // Null while it does not serve; never another one.
  const Server* server() const {
    const absl::MutexLock lock(&mutex_);
    return server_.get();
  }

 private:
  bool Try() {
    absl::StatusOr<std::unique_ptr<Server>> server = start_();
    bool is_news = false;
    {
      const absl::MutexLock lock(&mutex_);
      is_news = server.status() != status_;
      status_ = server.status();
      if (server.ok()) server_ = *std::move(server);
    }
    const std::string text = problem();
    if (!is_news) return text.empty();
    text.empty() ? LogInfo(what_, ": served now") : LogError(text);
    NotifyServiceManager(absl::StrCat("STATUS=", text.substr(0, text.find('\n'))));
    return text.empty();
  }

  const std::string what_;
  const std::function<absl::StatusOr<std::unique_ptr<Server>>()> start_;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // OK at first, so that a start without trouble is no news
  std::unique_ptr<Server> server_ ABSL_GUARDED_BY(mutex_);
  net::SteadyNotification ended_;
  std::thread thread_;
};

}  // namespace hedgerow::operate
