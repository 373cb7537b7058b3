// SPDX-License-Identifier: Apache-2.0
#include "operate/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "operate/log.h"

namespace hedgerow::operate {

void LeaveNohup(sigset_t& signals) {
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN) sigdelset(&signals, SIGHUP);
}

net::UniqueFd HearSignals() {
  for (const int each : {SIGPIPE, SIGXFSZ}) signal(each, SIG_IGN);
  sigset_t heard;
  sigemptyset(&heard);
  for (const int each : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&heard, each);
  LeaveNohup(heard);
  sigprocmask(SIG_BLOCK, &heard, nullptr);
  return net::UniqueFd(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<int> NextSignal(int fd) {
  signalfd_siginfo info{};
  while (read(fd, &info, sizeof(info)) == sizeof(info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number != SIGUSR1 && number != SIGUSR2) return number;
    LogInfo(number == SIGUSR1 ? "SIGUSR1" : "SIGUSR2", " of process ", info.ssi_pid, " is ignored");
  }
  return std::nullopt;
}

}  // namespace hedgerow::operate
