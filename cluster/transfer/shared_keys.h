// SPDX-License-Identifier: Apache-2.0
//
// The cluster's keys between a node's loop, which changes them, and the threads of its transfers, which take them when
// a connection begins. A connection keeps the key that it began with. Any thread.

#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cluster/wire/key.h"

namespace hedgerow::transfer {

class SharedKeys {
 public:
  explicit SharedKeys(const wire::KeyRing& keys) : keys_(keys) {}
  void Set(const wire::KeyRing& keys) {
    absl::MutexLock lock(&mutex_);
    keys_ = keys;
  }
  wire::KeyRing Get() const {
    absl::MutexLock lock(&mutex_);
    return keys_;
  }

 private:
  mutable absl::Mutex mutex_;
  wire::KeyRing keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::transfer
