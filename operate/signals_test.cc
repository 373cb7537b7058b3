// SPDX-License-Identifier: Apache-2.0
//
// What each signal does to a daemon, in a process of its own.

#include "operate/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <thread>

#include "operate/log.h"

#include <gtest/gtest.h>

#include "operate/log.h"

namespace hedgerow::operate {
namespace {

constexpr int kNothing = 100;

// What a daemon that is sent `number` hears, as its exit code; kNothing when it hears nothing and lives on.
int Heard(int number, bool ignored_at_start = false) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (ignored_at_start) signal(number, SIG_IGN);
    const net::UniqueFd signals = HearSignals();
    kill(getpid(), number);
    pollfd ready{.fd = signals.get(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, 200);
    _exit(NextSignal(signals.get()).value_or(kNothing));
  }
  int state = 0;
  waitpid(pid, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

TEST(Signals, ThoseThatEndADaemonAndTheOneThatReloadsItAreHeard) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) EXPECT_EQ(Heard(number), number);
}

TEST(Signals, AHangupThatNohupIgnoresStaysIgnored) { EXPECT_EQ(Heard(SIGHUP, /*ignored_at_start=*/true), kNothing); }

TEST(Signals, ThoseWithoutAMeaningHereEndNothing) {
  for (const int number : {SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ}) EXPECT_EQ(Heard(number), kNothing);
}

TEST(Signals, AParentThatIgnoresTheEndOfItsChildrenHidesNoneFromUs) {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGCHLD, SIG_IGN);  // as exec(2) leaves it
    BeginProgram();
    const pid_t child = fork();
    if (child == 0) _exit(7);
    int state = 0;
    _exit(waitpid(child, &state, 0) == child && WEXITSTATUS(state) == 7 ? 0 : 1);
  }
  int state = 0;
  waitpid(pid, &state, 0);
  EXPECT_EQ(state, 0);
}

TEST(Signals, OneForADumpEndsTheProcess) { EXPECT_EQ(Heard(SIGABRT), -SIGABRT); }

void Ends(const std::function<void()>& how, const char* with) {
  EXPECT_EXIT((BeginProgram(), how()), testing::ExitedWithCode(1), with);
}

TEST(Ends, OfALibraryThatGivesUpSayWhatToDo) {
  Ends([] { abort(); }, "ended by a library, .* LimitNOFILE= .* start again");
  Ends([] { std::thread([] { throw std::runtime_error("no thread"); }).join(); },
       "cannot go on: no thread; .* raise LimitNOFILE=");
  Ends([] { errno = EMFILE, EndForWantOf("a thing"); }, "cannot get a thing: Too many open files; raise LimitNOFILE=");
}

TEST(Ends, ThatWaitForAConnectionAreBounded) {
  Ends([] { BoundTheEnd(), pause(); }, "without waiting for connections");
}

TEST(Ends, ByAnotherProcesssAbortDumpCore) {
  const auto killed_by_its_child = [] {
    BeginProgram();
    if (fork() == 0) kill(getppid(), SIGABRT), _exit(0);
    pause();
  };
  EXPECT_EXIT(killed_by_its_child(), testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace hedgerow::operate
