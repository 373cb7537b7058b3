// SPDX-License-Identifier: Apache-2.0
//
// hr-clock.so: a wall clock of its own for one process of the lab, which can jump while the machine's stands
// (setting that one would change it for all processes). It stands before the C library's calls that tell the time, that
// stamp received datagrams, and that wait until a time. The monotonic clocks are the machine's, as they are when a real
// wall clock is set. Preloaded by deploy/lab (NodeSettings.own_clock) with HEDGEROW_LAB_CLOCK, the file of
// deploy/lab/own_clock.py; the product knows nothing of it. What it does not reach: system calls that do not go
// through the C library, and timers of the kernel on the wall clock.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;

struct Clock {
  std::atomic<int64_t> ahead_ns;
  std::atomic<int64_t> ahead_before_ns;
  std::atomic<int64_t> since_ns;  // CLOCK_REALTIME of the last jump
  std::atomic<uint64_t> told;     // wrong times
  char rest[32];
};
static_assert(sizeof(Clock) == 64 && std::atomic<int64_t>::is_always_lock_free);

Clock right{};
Clock* the_clock = &right;

__attribute__((constructor)) void OpenClock() {
  const char* const file = getenv("HEDGEROW_LAB_CLOCK");
  if (file == nullptr) return;
  const int opened = open(file, O_RDWR | O_CLOEXEC);
  void* const shared = mmap(nullptr, sizeof(Clock), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (opened < 0 || shared == MAP_FAILED) {
    perror("hr-clock: HEDGEROW_LAB_CLOCK");
    _exit(1);
  }
  close(opened);
  the_clock = static_cast<Clock*>(shared);
}

int64_t ToNs(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }

timespec FromNs(int64_t ns) {
  int64_t seconds = ns / kNanosPerSecond;
  int64_t rest_ns = ns % kNanosPerSecond;
  if (rest_ns < 0) {
    --seconds;
    rest_ns += kNanosPerSecond;
  }
  return {.tv_sec = seconds, .tv_nsec = rest_ns};
}

int64_t AheadNs() { return the_clock->ahead_ns.load(); }

// A wait until a time of this clock, as a time of the machine's.
timespec ToMachine(const timespec& until) { return FromNs(ToNs(until) - AheadNs()); }

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// A datagram that came before the jump was stamped by the clock as it was then.
int64_t StampNs(int64_t machine_ns) {
  return machine_ns + (machine_ns < the_clock->since_ns.load() ? the_clock->ahead_before_ns.load() : AheadNs());
}

void Restamp(msghdr& message) {
  if (AheadNs() == 0 && the_clock->ahead_before_ns.load() == 0) return;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(control), sizeof(stamp));
    stamp = FromNs(StampNs(ToNs(stamp)));
    std::memcpy(CMSG_DATA(control), &stamp, sizeof(stamp));
  }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  const int64_t ahead_ns = AheadNs();
  if (ahead_ns == 0) return result;
  *now = FromNs(ToNs(*now) + ahead_ns);
  the_clock->told.fetch_add(1);
  return result;
}

int gettimeofday(timeval* now, void* zone) noexcept {
  (void)zone;
  timespec time{};
  const int result = clock_gettime(CLOCK_REALTIME, &time);
  *now = {.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
  return result;
}

time_t time(time_t* at) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != nullptr) *at = now.tv_sec;
  return now.tv_sec;
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto next = Next<ssize_t (*)(int, msghdr*, int)>("recvmsg");
  const ssize_t result = next(socket, message, flags);
  if (result >= 0) Restamp(*message);
  return result;
}

int recvmmsg(int socket, mmsghdr* messages, unsigned int count, int flags, timespec* timeout) {
  static const auto next = Next<int (*)(int, mmsghdr*, unsigned int, int, timespec*)>("recvmmsg");
  const int received = next(socket, messages, count, flags, timeout);
  for (int i = 0; i < received; ++i) Restamp(messages[i].msg_hdr);
  return received;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  static const auto next = Next<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  // By its attribute the condition may wait by the monotonic clock. Nothing asks it: a caller that has set it has
  // also taken `until` from there, and no monotonic clock is anywhere near the wall clock.
  timespec monotonic{};
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  constexpr int64_t kYears_ns = 20LL * 365 * 86400 * kNanosPerSecond;
  const bool wall = ToNs(*until) - AheadNs() > ToNs(monotonic) + kYears_ns;
  const timespec at = wall ? ToMachine(*until) : *until;
  return next(condition, mutex, &at);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static const auto next =
      Next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
  const timespec at = clock == CLOCK_REALTIME ? ToMachine(*until) : *until;
  return next(condition, mutex, clock, &at);
}

// Abseil waits by futex.
long syscall(long number, ...) noexcept {
  using Syscall = long (*)(long, ...);
  static const auto next = Next<Syscall>("syscall");
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  timespec at{};
  if (number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 &&
      (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && arguments[3] != 0) {
    at = ToMachine(*reinterpret_cast<const timespec*>(arguments[3]));
    arguments[3] = reinterpret_cast<long>(&at);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

}  // extern "C"
