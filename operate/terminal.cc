// SPDX-License-Identifier: Apache-2.0
#include "operate/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace hedgerow::operate {
namespace {

// The other screen, no cursor, no wrapping; and back.
constexpr char kEnter[] = "\033[?1049h\033[?25l\033[?7l";
constexpr char kLeave[] = "\033[?7h\033[?25h\033[?1049l";
constexpr int kCrashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// What a signal handler may touch.
termios g_before{};
volatile sig_atomic_t g_inside = 0;

void WriteAll(const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(STDOUT_FILENO, bytes, count);
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      poll(&ready, 1, 1000);
    } else if (written < 0 && errno != EINTR) {
      return;  // the terminal is gone
    } else if (written > 0) {
      bytes += written;
      count -= static_cast<size_t>(written);
    }
  }
}

// Safe in a signal handler.
void Leave() {
  if (!g_inside) return;
  g_inside = 0;
  WriteAll(kLeave, sizeof(kLeave) - 1);
  tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

bool Begin() {
  termios raw = g_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // ISIG stays: Ctrl-C and Ctrl-Z are signals
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) return false;
  g_inside = 1;
  WriteAll(kEnter, sizeof(kEnter) - 1);
  return true;
}

// The handler was reset to the default, which ends the process as the crash would have.
void OnCrash(int signal_number) {
  Leave();
  raise(signal_number);
}

void CatchCrashes(bool on) {
  for (const int each : kCrashes) {
    struct sigaction action {};
    action.sa_handler = on ? OnCrash : SIG_DFL;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(each, &action, nullptr);
  }
}

}  // namespace

bool Terminal::Usable() {
  const char* kind = getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && kind != nullptr && *kind != '\0' &&
         strcmp(kind, "dumb") != 0;
}

bool Terminal::Colours() {
  const char* off = getenv("NO_COLOR");
  return Usable() && (off == nullptr || *off == '\0');
}

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Enter() {
  if (tcgetattr(STDIN_FILENO, &g_before) != 0) return absl::ErrnoToStatus(errno, "reading the terminal's settings");
  CatchCrashes(true);
  if (!Begin()) return absl::ErrnoToStatus(errno, "changing the terminal's settings");
  return std::unique_ptr<Terminal>(new Terminal());
}

Terminal::~Terminal() {
  Leave();
  CatchCrashes(false);
}

Terminal::Size Terminal::GetSize() const {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

void Terminal::Draw(const std::string* lines, size_t count) {
  std::string frame = "\033[H";
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&frame, i == 0 ? "" : "\r\n", lines[i], "\033[K");
  frame += "\033[J";
  WriteAll(frame.data(), frame.size());
}

Terminal::Key Terminal::ReadKey() {
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return Key::kEnd;
  if (count < 0) return Key::kNone;
  const std::string pressed(keys, static_cast<size_t>(count));
  if (pressed == "q" || pressed == "Q") return Key::kQuit;
  if (pressed == "k" || pressed == "\033[A" || pressed == "\033OA") return Key::kUp;
  if (pressed == "j" || pressed == "\033[B" || pressed == "\033OB") return Key::kDown;
  if (pressed == "\033[5~") return Key::kPageUp;
  if (pressed == " " || pressed == "\033[6~") return Key::kPageDown;
  // Keys that came together: the last word counts.
  return pressed.find('q') != std::string::npos ? Key::kQuit : Key::kNone;
}

void Terminal::Suspend() {
  Leave();
  raise(SIGSTOP);
  tcgetattr(STDIN_FILENO, &g_before);
  Begin();
}

}  // namespace hedgerow::operate
