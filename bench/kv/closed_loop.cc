// SPDX-License-Identifier: Apache-2.0
#include "bench/kv/closed_loop.h"

#include <array>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cluster/client/hkv_client.h"

namespace hedgerow::bench {
namespace {

uint64_t Now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Loop {
 public:
  Loop(const ClosedLoopOptions& options) : options_(options), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Loop() { close(epoll_); }

  absl::Status Connect();
  absl::StatusOr<ClosedLoopReport> Run(void (*on_phase)(const char*));

 private:
  struct Caller {
    std::unique_ptr<client::HkvClient> client;
    uint64_t next_key = 0;
  };

  absl::Status Send(size_t index);
  absl::Status Collect(size_t index);
  absl::Status PollUntil(uint64_t end_ns);

  const ClosedLoopOptions& options_;
  int epoll_;
  std::vector<Caller> callers_;
  bool stopping_ = false;
  bool measuring_ = false;
  ClosedLoopReport report_;
};

absl::Status Loop::Connect() {
  if (epoll_ < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (size_t i = 0; i < options_.clients; ++i) {
    absl::StatusOr<std::unique_ptr<client::HkvClient>> client = client::HkvClient::Connect(options_.server);
    if (!client.ok()) return client.status();
    if (absl::Status opened = (*client)->Open(absl::Seconds(10)); !opened.ok()) return opened;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, (*client)->fd(), &event) != 0)
      return absl::ErrnoToStatus(errno, "epoll_ctl");
    callers_.push_back({.client = *std::move(client)});
  }
  return absl::OkStatus();
}

absl::Status Loop::Send(size_t index) {
  Caller& caller = callers_[index];
  std::string key = absl::StrCat("bench/", index, "/", caller.next_key++ % options_.keys);
  if (options_.operation == KvOperation::kGet)
    return caller.client->SendGet(std::move(key), options_.patience).status();
  kv::Operation put;
  put.kind = kv::OperationKind::kPut;
  put.key = std::move(key);
  put.value.assign(options_.value_bytes, 'v');
  return caller.client->SendWrite({std::move(put)}, options_.patience).status();
}

absl::Status Loop::Collect(size_t index) {
  for (const client::Outcome& outcome : callers_[index].client->Poll(absl::ZeroDuration())) {
    if (measuring_) {
      if (!outcome.answer.has_value()) {
        ++report_.lost;
      } else if (outcome.answer->status == wire::HkvStatus::kOk ||
                 (options_.operation == KvOperation::kGet &&
                  outcome.answer->status == wire::HkvStatus::kNotFound)) {
        ++report_.answered;
        report_.latency_ns.Record(outcome.ended_ns - outcome.sent_ns);
      } else {
        ++report_.failed;
      }
    }
    if (stopping_) continue;
    if (absl::Status sent = Send(index); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status Loop::PollUntil(uint64_t end_ns) {
  std::array<epoll_event, 64> events;
  uint64_t swept_ns = Now_ns();
  while (true) {
    const uint64_t now_ns = Now_ns();
    if (now_ns >= end_ns) return absl::OkStatus();
    const int ready = epoll_wait(epoll_, events.data(), events.size(), 10);
    for (int i = 0; i < ready; ++i) {
      if (absl::Status collected = Collect(events[static_cast<size_t>(i)].data.u64); !collected.ok())
        return collected;
    }
    // A request without an answer makes no descriptor readable: it is given up here.
    if (now_ns - swept_ns < 50'000'000) continue;
    swept_ns = now_ns;
    for (size_t i = 0; i < callers_.size(); ++i) {
      if (absl::Status collected = Collect(i); !collected.ok()) return collected;
    }
  }
}

absl::StatusOr<ClosedLoopReport> Loop::Run(void (*on_phase)(const char*)) {
  for (size_t i = 0; i < callers_.size(); ++i) {
    if (absl::Status sent = Send(i); !sent.ok()) return sent;
  }
  if (absl::Status status =
          PollUntil(Now_ns() + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.warm_up)));
      !status.ok()) {
    return status;
  }
  on_phase("measuring");
  measuring_ = true;
  const uint64_t begin_ns = Now_ns();
  absl::Status status =
      PollUntil(begin_ns + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.measured)));
  report_.seconds = static_cast<double>(Now_ns() - begin_ns) / 1e9;
  measuring_ = false;
  stopping_ = true;
  on_phase("measured");
  if (!status.ok()) return status;
  return std::move(report_);
}

}  // namespace

absl::StatusOr<ClosedLoopReport> RunClosedLoop(const ClosedLoopOptions& options,
                                               void (*on_phase)(const char* phase)) {
  Loop loop(options);
  if (absl::Status connected = loop.Connect(); !connected.ok()) return connected;
  return loop.Run(on_phase);
}

}  // namespace hedgerow::bench
