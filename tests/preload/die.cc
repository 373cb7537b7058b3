// SPDX-License-Identifier: Apache-2.0
//
// hr-die.so: a process that is killed at a chosen point of its work on the kernel's maps, for a program of the
// lab. It counts the bpf(2) calls that change something (an element written or deleted, the proxy's control
// program run) from the moment that the file HEDGEROW_LAB_DIE_AT names exists; before the one whose number
// (from 1) stands in it the process kills itself, as kill -9 would. Preloaded by tests of reloads.
#include <dlfcn.h>
#include <linux/bpf.h>
#include <net/ethernet.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace {

// 0: not now.
long WantedCall() {
  const char* const path = getenv("HEDGEROW_LAB_DIE_AT");
  FILE* const file = path == nullptr ? nullptr : fopen(path, "re");
  if (file == nullptr) return 0;
  long number = 0;
  if (fscanf(file, "%ld", &number) != 1) number = 0;
  fclose(file);
  return number;
}

// The clock's watchdog is run all the time, and on another frame.
bool Changes(long command, const bpf_attr* attributes) {
  constexpr __u32 kControlFrameBytes = ETHER_HDR_LEN + 40;  // hr_control_request
  return command == BPF_MAP_UPDATE_ELEM || command == BPF_MAP_DELETE_ELEM ||
         (command == BPF_PROG_TEST_RUN && attributes->test.data_size_in == kControlFrameBytes);
}

}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  using Syscall = long (*)(long, ...);
  static const auto next = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  static std::atomic<long> calls = 0;
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_bpf && Changes(arguments[0], reinterpret_cast<const bpf_attr*>(arguments[1]))) {
    if (const long wanted = WantedCall(); wanted != 0 && ++calls == wanted) kill(getpid(), SIGKILL);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
