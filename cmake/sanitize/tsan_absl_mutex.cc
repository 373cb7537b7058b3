// SPDX-License-Identifier: Apache-2.0
//
// Makes absl::Mutex, absl::CondVar and absl::Notification visible to ThreadSanitizer. Debian's Abseil is a
// shared library built without it, so every use of an absl::Mutex would be reported as a race. The executable's
// definitions below come before the library's in symbol order: each calls the library's own and tells
// ThreadSanitizer what it means. Compiled only into binaries of the tsan preset (hedgerow_options.cmake).
// Written for Abseil 20220623 (Debian 12, Ubuntu 24.04); later ones split these functions differently and get
// no help from here.
#include "absl/base/config.h"

#if ABSL_LTS_RELEASE_VERSION < 20230101

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace {

#define HEDGEROW_TOKEN_TEXT_2(x) #x
#define HEDGEROW_TOKEN_TEXT(x) HEDGEROW_TOKEN_TEXT_2(x)
constexpr const char* kNamespace = HEDGEROW_TOKEN_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);

// Finds the library's own function: "_ZN4absl7debian3" + the rest of the mangled name, or with "_ZNK4absl" one
// that is const.
void* Original(const char* mangled_rest, const char* begin = "_ZN4absl") {
  char name[256];
  char length[8];
  int digits = 0;
  for (size_t n = std::strlen(kNamespace); n > 0; n /= 10) length[digits++] = static_cast<char>('0' + n % 10);
  char* out = name;
  for (const char* c = begin; *c != 0; ++c) *out++ = *c;
  while (digits > 0) *out++ = length[--digits];
  for (const char* c = kNamespace; *c != 0; ++c) *out++ = *c;
  std::strcpy(out, mangled_rest);
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return found;
}

// Inside the library ThreadSanitizer sees only intercepted memory functions and the caller's Condition,
// evaluated on whichever thread holds the lock. Both are ordered by the lock itself, so neither is looked at.
class IgnoreLibrary {
 public:
  IgnoreLibrary() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~IgnoreLibrary() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

enum Edge { kAcquire = 1, kRelease = 2, kBoth = 3 };

template <typename Result, typename Self, typename... Args>
Result Call(Edge edge, void* lock, void* original, Self* self, Args... args) {
  auto* function = reinterpret_cast<Result (*)(Self*, Args...)>(original);
  if (edge & kRelease) __tsan_release(lock);
  if constexpr (std::is_void_v<Result>) {
    {
      IgnoreLibrary ignore;
      function(self, args...);
    }
    if (edge & kAcquire) __tsan_acquire(lock);
  } else {
    Result result;
    {
      IgnoreLibrary ignore;
      result = function(self, args...);
    }
    // A failed TryLock acquires nothing, but claiming it would only hide a race on a path that must not touch
    // data.
    if (edge & kAcquire) __tsan_acquire(lock);
    return result;
  }
}

}  // namespace

#define HEDGEROW_ORIGINAL(...) static void* const original = Original(__VA_ARGS__)

namespace absl {
ABSL_NAMESPACE_BEGIN

#define HEDGEROW_MUTEX(Type, Method, Edge, Rest)          \
  Type Mutex::Method() {                                  \
    HEDGEROW_ORIGINAL(Rest);                              \
    return Call<Type, Mutex>(Edge, this, original, this); \
  }
HEDGEROW_MUTEX(void, Lock, kAcquire, "5Mutex4LockEv")
HEDGEROW_MUTEX(void, Unlock, kRelease, "5Mutex6UnlockEv")
HEDGEROW_MUTEX(bool, TryLock, kAcquire, "5Mutex7TryLockEv")
HEDGEROW_MUTEX(void, ReaderLock, kAcquire, "5Mutex10ReaderLockEv")
HEDGEROW_MUTEX(void, ReaderUnlock, kRelease, "5Mutex12ReaderUnlockEv")
HEDGEROW_MUTEX(bool, ReaderTryLock, kAcquire, "5Mutex13ReaderTryLockEv")

#define HEDGEROW_WHEN(Method, Edge, Rest)                                   \
  void Mutex::Method(const Condition& cond) {                               \
    HEDGEROW_ORIGINAL(Rest);                                                \
    Call<void, Mutex, const Condition*>(Edge, this, original, this, &cond); \
  }
#define HEDGEROW_WHEN_UNTIL(Method, Edge, Rest, Limit)                                           \
  bool Mutex::Method(const Condition& cond, Limit limit) {                                       \
    HEDGEROW_ORIGINAL(Rest);                                                                     \
    return Call<bool, Mutex, const Condition*, Limit>(Edge, this, original, this, &cond, limit); \
  }
HEDGEROW_WHEN(Await, kBoth, "5Mutex5AwaitERKNS0_9ConditionE")
HEDGEROW_WHEN(LockWhen, kAcquire, "5Mutex8LockWhenERKNS0_9ConditionE")
HEDGEROW_WHEN(ReaderLockWhen, kAcquire, "5Mutex14ReaderLockWhenERKNS0_9ConditionE")
HEDGEROW_WHEN_UNTIL(AwaitWithTimeout, kBoth, "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE", Duration)
HEDGEROW_WHEN_UNTIL(AwaitWithDeadline, kBoth, "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE", Time)
HEDGEROW_WHEN_UNTIL(LockWhenWithTimeout, kAcquire, "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                    Duration)
HEDGEROW_WHEN_UNTIL(LockWhenWithDeadline, kAcquire, "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE", Time)

void CondVar::Wait(Mutex* mu) {
  HEDGEROW_ORIGINAL("7CondVar4WaitEPNS0_5MutexE");
  Call<void, CondVar, Mutex*>(kBoth, mu, original, this, mu);
}

bool CondVar::WaitWithTimeout(Mutex* mu, Duration timeout) {
  HEDGEROW_ORIGINAL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  return Call<bool, CondVar, Mutex*, Duration>(kBoth, mu, original, this, mu, timeout);
}

bool CondVar::WaitWithDeadline(Mutex* mu, Time deadline) {
  HEDGEROW_ORIGINAL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  return Call<bool, CondVar, Mutex*, Time>(kBoth, mu, original, this, mu, deadline);
}

// Whoever comes late takes no lock: the library looks at its flag and returns.
void Notification::Notify() {
  HEDGEROW_ORIGINAL("12Notification6NotifyEv");
  Call<void, Notification>(kRelease, this, original, this);
}

void Notification::WaitForNotification() const {
  HEDGEROW_ORIGINAL("12Notification19WaitForNotificationEv", "_ZNK4absl");
  Call<void, const Notification>(kAcquire, const_cast<Notification*>(this), original, this);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  HEDGEROW_ORIGINAL("12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", "_ZNK4absl");
  return Call<bool, const Notification, Duration>(kAcquire, const_cast<Notification*>(this), original, this, timeout);
}

ABSL_NAMESPACE_END
}  // namespace absl

#endif  // ABSL_LTS_RELEASE_VERSION < 20230101
