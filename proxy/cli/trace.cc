// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow trace`: asks the daemon for single requests and prints them, as
// whole requests when they have come to their end or, with --follow, event by event.
// Ends at --count, after --for, or when it is told to; docs/tracing.md.

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "config/json.h"
#include "config/scalar.h"
#include "net/unique_fd.h"
#include "proxy/admin/client.h"
#include "proxy/cli/capture_file.h"
#include "proxy/cli/command.h"
#include "proxy/cli/trace_text.h"
#include "operate/event_loop.h"
#include "operate/signals.h"
#include "proxy/trace/timeline.h"

namespace hedgerow::cli {
namespace {

struct Options {
  v1::TraceRequest request;
  uint64_t count = 0;  // 0: no end
  int64_t for_ns = 0;  // 0: no end
  bool follow = false;
  std::string pcap{};  // a file, "-": standard output in place of lines; empty: none
};

absl::StatusOr<uint64_t> Whole(const Arguments& arguments, const std::string& name, uint64_t most) {
  if (!arguments.Has(name)) return 0;
  const std::optional<int64_t> value = config::ParseWhole(arguments.Get(name));
  if (value.has_value() && *value >= 1 && static_cast<uint64_t>(*value) <= most) return static_cast<uint64_t>(*value);
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": got \"", arguments.Get(name), "\", expected 1 to ", most));
}

absl::StatusOr<int64_t> DurationOf(const Arguments& arguments, const std::string& name) {
  if (!arguments.Has(name)) return 0;
  const std::optional<int64_t> value = config::ParseDurationNs(arguments.Get(name));
  if (value.has_value() && *value > 0) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": got \"", arguments.Get(name), "\", expected a duration such as 20ms"));
}

absl::StatusOr<Options> ParseOptions(const Arguments& arguments) {
  Options options;
  v1::TraceRequest& request = options.request;
  request.set_service(arguments.Get("service"));
  request.set_backend(arguments.Get("backend"));
  request.set_client(arguments.Get("client"));
  request.set_key(arguments.Get("key"));
  request.set_hedged(arguments.Has("hedged"));
  options.follow = arguments.Has("follow");
  options.pcap = arguments.Get("pcap");
  if (options.pcap == "-" && arguments.json())
    return absl::InvalidArgumentError("--pcap -: got --json as well, expected one of them on standard output");
  const auto port = Whole(arguments, "port", 65'535);
  const auto rate = Whole(arguments, "rate", 100'000);
  const auto count = Whole(arguments, "count", 1'000'000'000);
  const auto slower_ns = DurationOf(arguments, "slower-than");
  const auto for_ns = DurationOf(arguments, "for");
  for (const absl::Status& status :
       {port.status(), rate.status(), count.status(), slower_ns.status(), for_ns.status()}) {
    if (!status.ok()) return status;
  }
  request.set_client_port(static_cast<uint32_t>(*port));
  request.set_rate(static_cast<uint32_t>(*rate));
  request.set_slower_than_ns(*slower_ns);
  options.count = *count;
  options.for_ns = *for_ns;
  return options;
}

// Cancels the call when the time is over or a signal asks the program to end, so that the events gathered so far are
// printed.
class Ending {
 public:
  explicit Ending(int64_t for_ns) : for_ns_(for_ns) {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, each);
    operate::LeaveNohup(signals);
    // Before any thread starts, so that all have it.
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
    signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC));
    over_.Reset(eventfd(0, EFD_CLOEXEC));
  }
  ~Ending() {
    Rest();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  // From here to Rest() it may cancel the call.
  void Watch(TraceCall& call) {
    waiter_ = std::thread([this, &call] {
      pollfd wanted[] = {{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
      const int timeout_ms = for_ns_ == 0 ? -1 : static_cast<int>(for_ns_ / 1'000'000 + 1);
      while (poll(wanted, 2, timeout_ms) < 0 && errno == EINTR) {
      }
      // Taken, or it would end the process when signals are let through again.
      signalfd_siginfo taken{};
      if (wanted[0].revents != 0) {
        [[maybe_unused]] const ssize_t bytes = read(signals_.get(), &taken, sizeof(taken));
      }
      call.Cancel();
    });
  }
  void Rest() {
    if (!waiter_.joinable()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(over_.get(), &one, sizeof(one));
    waiter_.join();
  }

 private:
  const int64_t for_ns_;
  sigset_t before_{};
  net::UniqueFd signals_, over_;
  std::thread waiter_;
};

class Printer {
 public:
  // `capture` gets every event that comes; null: there is none.
  Printer(const Call& call, const Options& options, CaptureFile* capture)
      : call_(call), options_(options), capture_(capture), to_unix_ns_(absl::GetCurrentTimeNanos() - MonotonicNs()) {}

  // False: there is no need for more.
  bool Take(const v1::TraceReply& reply) {
    if (reply.services_size() > 0) timelines_.SetServices(reply);
    Lost(reply);
    for (const v1::TraceEvent& event : reply.events()) {
      if (capture_ != nullptr) capture_->Add(event, event.time_ns() + to_unix_ns_);
      if (!options_.follow) {
        timelines_.Add(event);
      } else if (!Print(event)) {
        return false;
      }
    }
    for (const v1::TracedRequest& request : timelines_.TakeFinished(MonotonicNs())) {
      if (!Print(request)) return false;
    }
    call_.out.flush();
    return static_cast<bool>(call_.out);
  }

  void End() {
    for (const v1::TracedRequest& request : timelines_.TakeAll()) {
      if (!Print(request)) break;
    }
    call_.out.flush();
  }

 private:
  bool More() { return options_.count == 0 || ++printed_ < options_.count; }

  bool Print(const v1::TraceEvent& event) {
    if (options_.pcap != "-")
      call_.out << (call_.arguments.json() ? ToJsonLine(event) : EventLine(event, event.time_ns() + to_unix_ns_));
    return More();
  }

  bool Print(v1::TracedRequest request) {
    const v1::TraceEvent& first = request.events(0);
    const int64_t seen_ns = first.time_ns() - first.since_ns() + to_unix_ns_;
    request.set_seen(absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixNanos(seen_ns), absl::UTCTimeZone()));
    if (options_.pcap != "-")
      call_.out << (call_.arguments.json() ? ToJsonLine(request) : RequestLine(request, seen_ns));
    return More();
  }

  // To standard error: what is missing belongs to no line.
  void Lost(const v1::TraceReply& reply) {
    if (reply.requests_lost() == requests_lost_ && reply.events_lost() == events_lost_) return;
    requests_lost_ = reply.requests_lost();
    events_lost_ = reply.events_lost();
    call_.err << "hedgerow: not shown so far: " << requests_lost_ << " requests over the rate, " << events_lost_
              << " events that found no room\n";
  }

  const Call& call_;
  const Options& options_;
  CaptureFile* const capture_;
  const int64_t to_unix_ns_;
  Timelines timelines_;
  uint64_t printed_ = 0;
  uint64_t requests_lost_ = 0, events_lost_ = 0;
};

}  // namespace

int RunTrace(const Call& call) {
  const auto options = ParseOptions(call.arguments);
  if (!options.ok()) return call.UsageError(std::string(options.status().message()));
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return call.FailOnALine(socket.status());
  Ending ending(options->for_ns);
  const auto client = AdminClient::Connect(*socket);
  if (!client.ok()) return call.FailOnALine(client.status());
  v1::Status status;  // the addresses in a capture file
  std::ofstream file;
  std::optional<CaptureFile> capture;
  if (!options->pcap.empty()) {
    const auto asked = client->Ask(&AdminClient::Stub::GetStatus);
    if (!asked.ok()) return call.FailOnALine(asked.status());
    status = *asked;
    const bool to_file = options->pcap != "-";
    if (const absl::Status made = to_file ? CreateCaptureFile(options->pcap, file) : absl::OkStatus(); !made.ok())
      return call.FailOnALine(made);
    capture.emplace(to_file ? static_cast<std::ostream&>(file) : call.out, status);
    (to_file ? static_cast<std::ostream&>(file) : call.out).flush();
  }
  TraceCall trace(*client, options->request);
  ending.Watch(trace);
  const absl::Cleanup rest = [&ending] { ending.Rest(); };  // before the call ends
  Printer printer(call, *options, capture.has_value() ? &*capture : nullptr);
  v1::TraceReply reply;
  bool enough = false;
  while (!enough && trace.Next(reply)) {
    enough = !printer.Take(reply);
    if (file.is_open() && !file.flush()) enough = true;
  }
  if (enough) trace.Cancel();
  const absl::Status ended = trace.Finish();
  if (!enough) printer.End();
  if (file.is_open() && !file)
    return call.FailOnALine(absl::UnknownError(
        absl::StrCat("cannot write ", options->pcap, ": it ends with frame ", capture->frames(), " or before")));
  return ended.ok() ? kExitOk : call.FailOnALine(ended);
}

}  // namespace hedgerow::cli
