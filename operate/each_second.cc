// SPDX-License-Identifier: Apache-2.0
#include "operate/each_second.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "net/steady_wait.h"
#include "operate/signals.h"
#include "operate/terminal.h"

namespace hedgerow::operate {
namespace {

class Screen {
 public:
  Screen(Terminal& terminal, EachSecondView& view, const std::string& footer)
      : terminal_(terminal), view_(view), footer_(footer), colours_(Terminal::Colours()) {}

  void NextSecond() {
    const absl::Status status = view_.Read();
    if (status.ok()) {
      silent_since_ = absl::InfiniteFuture();
      trouble_.clear();
    } else {
      if (silent_since_ == absl::InfiniteFuture()) silent_since_ = net::MonotonicNow();
      trouble_ = std::string(status.message());
    }
  }

  void Scroll(int lines) { offset_ += lines; }
  int PageRows() { return std::max(1, terminal_.GetSize().rows - 3); }

  void Draw() {
    const Terminal::Size size = terminal_.GetSize();
    std::vector<Line> lines = view_.Lines(size.columns);
    if (lines.empty()) lines.push_back(Line{Span{"the first second ..."}});
    if (!trouble_.empty()) {
      const int64_t seconds = absl::ToInt64Seconds(net::MonotonicNow() - silent_since_);
      lines.insert(lines.begin(),
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
    shown.push_back(Render({{more, Mark::kWarning}, {footer_, Mark::kQuiet}}, size.columns, colours_));
    terminal_.Draw(shown.data(), shown.size());
  }

 private:
  Terminal& terminal_;
  EachSecondView& view_;
  const std::string& footer_;
  const bool colours_;
  int offset_ = 0;
  std::string trouble_{};
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

}  // namespace

EachSecond::EachSecond() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP}) sigaddset(&signals, each);
  LeaveNohup(signals);
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
  signal_fd_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec second{};
  second.it_interval.tv_sec = second.it_value.tv_sec = 1;
  timerfd_settime(timer_.get(), 0, &second, nullptr);
}

EachSecond::~EachSecond() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int EachSecond::TakeSignal() const {
  signalfd_siginfo info{};
  return read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

bool EachSecond::TakeSecond() const {
  uint64_t seconds = 0;
  return read(timer_.get(), &seconds, sizeof(seconds)) > 0;
}

int EachSecond::Run(const Call& call, EachSecondView& view, bool once, const std::string& footer) const {
  if (call.arguments.json() || once || !Terminal::Usable()) return RunPlain(call, view, once);
  return RunOnScreen(call, view, footer);
}

int EachSecond::RunPlain(const Call& call, EachSecondView& view, bool once) const {
  while (true) {
    pollfd wanted[] = {{signal_fd_.get(), POLLIN, 0}, {timer_.get(), POLLIN, 0}};
    poll(wanted, 2, -1);
    const int signal_number = TakeSignal();
    if (signal_number == SIGTSTP) raise(SIGSTOP);
    if (signal_number != 0 && signal_number != SIGWINCH && signal_number != SIGTSTP) return kExitOk;
    if (!TakeSecond()) continue;
    if (const absl::Status status = view.Read(); !status.ok()) return call.FailOnALine(status);
    view.Print();
    call.out.flush();
    if (once) return kExitOk;
    if (!call.out) return kExitFailure;
  }
}

int EachSecond::RunOnScreen(const Call& call, EachSecondView& view, const std::string& footer) const {
  absl::StatusOr<std::unique_ptr<Terminal>> terminal = Terminal::Enter();
  if (!terminal.ok()) return call.FailOnALine(terminal.status());
  Screen screen(**terminal, view, footer);
  while (true) {
    screen.Draw();
    pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {signal_fd_.get(), POLLIN, 0}, {timer_.get(), POLLIN, 0}};
    poll(wanted, 3, -1);
    const int signal_number = TakeSignal();
    if (signal_number == SIGTSTP) {
      (*terminal)->Suspend();
    } else if (signal_number != 0 && signal_number != SIGWINCH) {
      return kExitOk;
    }
    if (wanted[0].revents != 0 && !OnKey(**terminal, screen)) return kExitOk;
    if (TakeSecond()) screen.NextSecond();
  }
}

}  // namespace hedgerow::operate
