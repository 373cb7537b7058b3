// SPDX-License-Identifier: Apache-2.0
#include "operate/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/steady_wait.h"
#include "operate/exit_code.h"

namespace hedgerow {
namespace {

constexpr int kWithoutThread_ms = 100;
constexpr absl::Duration kAtTheEnd = absl::Seconds(1);

// systemd.exec(5), "JOURNAL_STREAM": the file that it made of stderr, which the program may have been given
// another of since.
bool IsJournal() {
  const char* named = getenv("JOURNAL_STREAM");
  struct stat info {};
  return named != nullptr && fstat(STDERR_FILENO, &info) == 0 && absl::StrCat(info.st_dev, ":", info.st_ino) == named;
}

std::string LineOf(absl::string_view level, absl::string_view text) {
  static const bool journal = IsJournal();
  if (journal) {
    const absl::string_view prefix = level == "error" ? "<3>" : level == "warning" ? "<4>" : "<6>";
    return absl::StrCat(prefix, absl::StrReplaceAll(text, {{"\n", absl::StrCat("\n", prefix)}}), "\n");
  }
  return absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ", level, " ", text,
                      "\n");
}

bool HasRoom(int wait_ms) {
  pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&room, 1, wait_ms) > 0;
}

bool Write(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      HasRoom(-1);  // another process made our stderr non-blocking
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

class Log {
 public:
  void Add(std::string line) {
    const absl::MutexLock lock(&mutex_);
    if (!threaded_) {
      if (!HasRoom(kWithoutThread_ms) || !Write(line)) ++lost_;
    } else if (bytes_ + line.size() > operate::kLogBytes) {
      ++lost_;
    } else {
      bytes_ += line.size();
      waiting_.push_back({std::move(line), lost_});
    }
  }
  void Start() {
    {
      const absl::MutexLock lock(&mutex_);
      if (threaded_) return;
    }
    // It takes no signal: SIGPIPE becomes an error of the write, and those that end the program are another
    // thread's.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { Run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    const absl::MutexLock lock(&mutex_);
    threaded_ = true;  // it is there: where it cannot be had, the last line says so
  }
  void Flush() {
    const absl::MutexLock lock(&mutex_);
    const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return bytes_ == 0; };
    written_.Await(mutex_, kAtTheEnd, written);
  }
  uint64_t lost() {
    const absl::MutexLock lock(&mutex_);
    return lost_;
  }

 private:
  struct Waiting {
    std::string line;
    uint64_t lost_before = 0;
  };

  [[noreturn]] void Run() {
    uint64_t reported = lost();
    const auto report = [&reported](uint64_t lost) {
      if (lost == reported) return;
      if (Write(LineOf(
              "warning",
              absl::StrCat(lost - reported, " lines of this log were lost: stderr was full, or could not be written"))))
        reported = lost;
    };
    for (;;) {
      Waiting next;
      {
        const absl::MutexLock lock(&mutex_);
        const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !waiting_.empty(); };
        mutex_.Await(absl::Condition(&something));
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      report(next.lost_before);
      const bool written = Write(next.line);
      uint64_t lost_by_now = 0;
      bool last = false;
      {
        const absl::MutexLock lock(&mutex_);
        if (!written) ++lost_;
        lost_by_now = lost_;
        last = waiting_.empty();
      }
      // Those that found no room behind it.
      if (written && last) report(lost_by_now);
      const absl::MutexLock lock(&mutex_);
      bytes_ -= next.line.size();
      written_.SignalAll();
    }
  }

  absl::Mutex mutex_;
  net::SteadyCondVar written_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // waiting, or being written
  uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool threaded_ ABSL_GUARDED_BY(mutex_) = false;
};

// Never destroyed: the thread uses it to the process's end.
Log& TheLog() {
  static auto* log = new Log;
  return *log;
}

}  // namespace

void LogLine(absl::string_view level, absl::string_view text) { TheLog().Add(LineOf(level, text)); }

namespace operate {

void StartLogThread() {
  TheLog().Start();
  atexit([] { TheLog().Flush(); });
}

uint64_t LostLogLines() { return TheLog().lost(); }

namespace {

constexpr unsigned kEnd_s = 5;
constexpr char kMore[] = "raise LimitNOFILE= or TasksMax= (ulimit -n, -u), or free memory, and start again";

// In a signal handler.
template <size_t bytes>
[[noreturn]] void EndWith(const char (&line)[bytes]) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, bytes - 1);
  _exit(kExitFailure);
}

void OnAbort(int, siginfo_t* info, void*) {
  signal(SIGABRT, SIG_DFL);
  if (info->si_pid != getpid()) {
    raise(SIGABRT);  // when this handler has returned
    return;
  }
  EndWith(
      "error ended by a library, mostly for want of a descriptor, a thread or memory: raise LimitNOFILE= or TasksMax= "
      "(ulimit -n, -u), and start again\n");
}

[[noreturn]] void OnTerminate() {
  std::string reason = "an exception";
  try {
    if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& thrown) {
    reason = thrown.what();
  } catch (...) {
  }
  LogError("cannot go on: ", reason, "; if the system refuses a thread or memory: ", kMore);
  TheLog().Flush();
  _exit(kExitFailure);
}

}  // namespace

void BeginProgram() {
  signal(SIGCHLD, SIG_DFL);  // ignored by the parent, it would take the end of each child from waitpid(2)
  // Opened the wrong way round, so that a read or write fails as that of a closed one does.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) break;
  }
  struct sigaction abort {};
  abort.sa_sigaction = OnAbort;
  abort.sa_flags = SA_SIGINFO;
  sigaction(SIGABRT, &abort, nullptr);
  std::set_terminate(OnTerminate);
}

void EndForWantOf(absl::string_view what) {
  LogError("cannot get ", what, ": ", strerror(errno), "; ", kMore);
  TheLog().Flush();
  _exit(kExitFailure);
}

void BoundTheEnd() {
  signal(SIGALRM, [](int) { EndWith("error ended without waiting for connections that did not close\n"); });
  alarm(kEnd_s);
}

}  // namespace operate
}  // namespace hedgerow
