// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow top`: asks the daemon once a second and shows what happened in between:
// on a terminal a screen that redraws itself, into a pipe one snapshot after the
// other, with --json one object a line. The kernel counts the time of its programs only while
// this descriptor is open, so that a top that is killed costs nothing from then on.

#include <bpf/bpf.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "config/json.h"
#include "config/suggest.h"
#include "net/unique_fd.h"
#include "proxy/admin/client.h"
#include "proxy/cli/command.h"
#include "proxy/cli/terminal.h"
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

class Top {
 public:
  Top(const Call& call, std::string socket)
      : call_(call),
        socket_(std::move(socket)),
        only_(call.arguments.words.begin() + 1, call.arguments.words.end()),
        times_(!call.arguments.Has("no-program-times")) {}

  // The first reading: nothing to show yet, but what is wrong shows at once.
  absl::Status Begin() {
    absl::Status status = Read();
    if (!status.ok()) return status;
    std::vector<std::string> known;
    for (const v1::ServiceStatus& service : now_.status().services()) known.push_back(service.name());
    for (const std::string& name : only_) {
      if (std::find(known.begin(), known.end(), name) == known.end())
        return config::NoSuch("service", name, known);
    }
    return status;
  }

  absl::Status Read() {
    const auto client = AdminClient::Connect(socket_);
    if (!client.ok()) return client.status();
    auto counts = client->Ask(&AdminClient::Stub::GetCounts);
    if (!counts.ok()) return counts.status();
    before_ = std::move(now_);
    now_ = *std::move(counts);
    return absl::OkStatus();
  }

  v1::TopReport Report() const {
    v1::TopReport report = BuildTopReport(before_, now_, only_);
    report.set_time(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()));
    report.set_programs_unknown(times_.unknown());
    return report;
  }

  void Print() const {
    const v1::TopReport report = Report();
    if (call_.arguments.json()) {
      call_.out << ToJsonLine(report);
    } else {
      for (const Line& line : LayOutTop(report, kPlainWidth))
        call_.out << Render(line, kPlainWidth, false) << "\n";
      call_.out << "\n";
    }
    call_.out.flush();
  }

 private:
  const Call& call_;
  const std::string socket_;
  const std::vector<std::string> only_;
  const ProgramTimes times_;
  v1::Counts before_, now_;
};

// Signals and seconds as descriptors. Made before any thread, so that all threads leave the signals alone.
struct Waiting {
  Waiting() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP}) sigaddset(&signals, each);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    signal_fd.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    timer.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    itimerspec second{};
    second.it_interval.tv_sec = second.it_value.tv_sec = 1;
    timerfd_settime(timer.get(), 0, &second, nullptr);
  }
  ~Waiting() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }

  // 0: none.
  int TakeSignal() const {
    signalfd_siginfo info{};
    return read(signal_fd.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }
  bool TakeSecond() const {
    uint64_t seconds = 0;
    return read(timer.get(), &seconds, sizeof(seconds)) > 0;
  }

  sigset_t before{};
  net::UniqueFd signal_fd, timer;
};

// One snapshot a second into a pipe, or one at all.
int RunPlain(const Call& call, Top& top, const Waiting& waiting) {
  while (true) {
    pollfd wanted[] = {{waiting.signal_fd.get(), POLLIN, 0}, {waiting.timer.get(), POLLIN, 0}};
    poll(wanted, 2, -1);
    const int signal_number = waiting.TakeSignal();
    if (signal_number == SIGTSTP) raise(SIGSTOP);
    if (signal_number != 0 && signal_number != SIGWINCH && signal_number != SIGTSTP) return kExitOk;
    if (!waiting.TakeSecond()) continue;
    if (const absl::Status status = top.Read(); !status.ok()) return FailOnALine(call, status);
    top.Print();
    if (call.arguments.Has("once")) return kExitOk;
    if (!call.out) return kExitFailure;
  }
}

class Screen {
 public:
  Screen(Terminal& terminal, Top& top) : terminal_(terminal), top_(top), colours_(Terminal::Colours()) {}

  void NextSecond() {
    const absl::Status status = top_.Read();
    if (status.ok()) {
      report_ = top_.Report();
      silent_since_ = absl::InfiniteFuture();
      trouble_.clear();
    } else {
      if (silent_since_ == absl::InfiniteFuture()) silent_since_ = absl::Now();
      trouble_ = std::string(status.message());
    }
  }

  void Scroll(int lines) { offset_ += lines; }
  int PageRows() { return std::max(1, terminal_.GetSize().rows - 3); }

  void Draw() {
    const Terminal::Size size = terminal_.GetSize();
    std::vector<Line> lines;
    if (report_.has_value()) {
      lines = LayOutTop(*report_, size.columns);
    } else {
      lines.push_back(Line{Span{"hedgerow top: the first second ..."}});
    }
    if (!trouble_.empty()) {
      const int64_t seconds = absl::ToInt64Seconds(absl::Now() - silent_since_);
      lines.insert(
          lines.begin(),
          Line{Span{absl::StrCat("NO ANSWER for ", seconds, " s; what stands below is old: ", trouble_),
                    Mark::kAlarm}});
    }
    const int rows = std::max(1, size.rows - 1);
    const int hidden = std::max(0, static_cast<int>(lines.size()) - rows);
    offset_ = std::clamp(offset_, 0, hidden);
    std::vector<std::string> shown;
    for (int i = offset_; i < static_cast<int>(lines.size()) && i < offset_ + rows; ++i)
      shown.push_back(Render(lines[static_cast<size_t>(i)], size.columns, colours_));
    shown.resize(static_cast<size_t>(rows));
    const int below = hidden - offset_;
    const std::string more = below > 0 ? absl::StrCat("-- ", below, " more lines below --  ") : "";
    shown.push_back(Render({{more, Mark::kWarning}, {kFooter, Mark::kQuiet}}, size.columns, colours_));
    terminal_.Draw(shown.data(), shown.size());
  }

 private:
  Terminal& terminal_;
  Top& top_;
  const bool colours_;
  int offset_ = 0;
  std::optional<v1::TopReport> report_;
  std::string trouble_;
  absl::Time silent_since_ = absl::InfiniteFuture();
};

// False: the end.
bool OnKey(Terminal& terminal, Screen& screen) {
  using Key = Terminal::Key;
  const Key key = terminal.ReadKey();
  if (key == Key::kUp || key == Key::kDown) screen.Scroll(key == Key::kUp ? -1 : 1);
  if (key == Key::kPageUp || key == Key::kPageDown)
    screen.Scroll(key == Key::kPageUp ? -screen.PageRows() : screen.PageRows());
  return key != Key::kQuit && key != Key::kEnd;
}

int RunOnScreen(const Call& call, Top& top, const Waiting& waiting) {
  absl::StatusOr<std::unique_ptr<Terminal>> terminal = Terminal::Enter();
  if (!terminal.ok()) return FailOnALine(call, terminal.status());
  Screen screen(**terminal, top);
  while (true) {
    screen.Draw();
    pollfd wanted[] = {
        {STDIN_FILENO, POLLIN, 0}, {waiting.signal_fd.get(), POLLIN, 0}, {waiting.timer.get(), POLLIN, 0}};
    poll(wanted, 3, -1);
    const int signal_number = waiting.TakeSignal();
    if (signal_number == SIGTSTP) {
      (*terminal)->Suspend();
    } else if (signal_number != 0 && signal_number != SIGWINCH) {
      return kExitOk;
    }
    if (wanted[0].revents != 0 && !OnKey(**terminal, screen)) return kExitOk;
    if (waiting.TakeSecond()) screen.NextSecond();
  }
}

}  // namespace

int RunTop(const Call& call) {
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return FailOnALine(call, socket.status());
  const Waiting waiting;
  Top top(call, *socket);
  if (const absl::Status status = top.Begin(); !status.ok()) return FailOnALine(call, status);
  if (call.arguments.json() || call.arguments.Has("once") || !Terminal::Usable())
    return RunPlain(call, top, waiting);
  return RunOnScreen(call, top, waiting);
}

}  // namespace hedgerow::cli
