// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow top`: asks the daemon once a second and shows what happened in between:
// on a terminal a screen that redraws itself, into a pipe one snapshot after the
// other, with --json one object a line. The kernel counts the time of its programs only while
// this descriptor is open, so that a top that is killed costs nothing from then on.

#include <bpf/bpf.h>
#include <errno.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "config/json.h"
#include "config/suggest.h"
#include "net/unique_fd.h"
#include "operate/each_second.h"
#include "proxy/admin/client.h"
#include "proxy/cli/command.h"
#include "proxy/cli/top_report.h"
#include "proxy/cli/top_screen.h"

namespace hedgerow::cli {
namespace {

constexpr int kPlainWidth = 80;
constexpr char kFooter[] = "q ends  up, down scroll  (program times are counted only while this is open)";

// The kernel's counting of run times, for as long as this lives.
class ProgramTimes {
 public:
  explicit ProgramTimes(bool wanted) {
    if (!wanted) {
      unknown_ = "not counted: --no-program-times";
      return;
    }
    fd_.Reset(bpf_enable_stats(BPF_STATS_RUN_TIME));
    if (fd_.valid() || OnAnyway()) return;
    unknown_ = errno == EPERM ? "not counted: needs CAP_SYS_ADMIN" : "not counted: the kernel refuses";
  }
  const std::string& unknown() const { return unknown_; }

 private:
  static bool OnAnyway() {
    const int error = errno;
    int on = 0;
    std::ifstream("/proc/sys/kernel/bpf_stats_enabled") >> on;
    errno = error;
    return on == 1;
  }

  net::UniqueFd fd_;
  std::string unknown_;
};

class Top : public operate::EachSecondView {
 public:
  Top(const Call& call, std::string socket)
      : call_(call),
        socket_(std::move(socket)),
        only_(call.arguments.words.begin() + 1, call.arguments.words.end()),
        times_(!call.arguments.Has("no-program-times")) {}

  // The first reading: nothing to show yet, but what is wrong shows at once.
  absl::Status Begin() {
    absl::Status status = Ask();
    if (!status.ok()) return status;
    std::vector<std::string> known;
    for (const v1::ServiceStatus& service : now_.status().services()) known.push_back(service.name());
    for (const std::string& name : only_) {
      if (std::find(known.begin(), known.end(), name) == known.end()) return config::NoSuch("service", name, known);
    }
    return status;
  }

  // The rates since the last time.
  absl::Status Read() override {
    if (absl::Status status = Ask(); !status.ok()) return status;
    report_ = BuildTopReport(before_, now_, only_);
    report_.set_time(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()));
    report_.set_programs_unknown(times_.unknown());
    ready_ = true;
    return absl::OkStatus();
  }

  std::vector<Line> Lines(int width) const override { return ready_ ? LayOutTop(report_, width) : std::vector<Line>{}; }

  void Print() const override {
    if (call_.arguments.json()) {
      call_.out << ToJsonLine(report_);
      return;
    }
    for (const Line& line : Lines(kPlainWidth)) call_.out << Render(line, kPlainWidth, false) << "\n";
    call_.out << "\n";
  }

 private:
  absl::Status Ask() {
    const auto client = AdminClient::Connect(socket_);
    if (!client.ok()) return client.status();
    auto counts = client->Ask(&AdminClient::Stub::GetCounts);
    if (!counts.ok()) return counts.status();
    before_ = std::move(now_);
    now_ = *std::move(counts);
    return absl::OkStatus();
  }

  const Call& call_;
  const std::string socket_;
  const std::vector<std::string> only_;
  const ProgramTimes times_;
  v1::Counts before_, now_;
  v1::TopReport report_;
  bool ready_ = false;
};

}  // namespace

int RunTop(const Call& call) {
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return call.FailOnALine(socket.status());
  const operate::EachSecond each_second;
  Top top(call, *socket);
  if (const absl::Status status = top.Begin(); !status.ok()) return call.FailOnALine(status);
  return each_second.Run(call, top, call.arguments.Has("once"), kFooter);
}

}  // namespace hedgerow::cli
