// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/host/scheduling.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cluster/node/host/sched_attributes.h"
#include "net/unique_fd.h"

namespace hedgerow::node {
namespace {

constexpr char kFile[] = "/proc/self/autogroup";
// The kernel takes one such change in 100 ms from all processes without CAP_SYS_ADMIN.
constexpr int kTriesMax = 10;
constexpr absl::Duration kBetweenTries = absl::Milliseconds(100);

}  // namespace

absl::Status GiveSessionOwnNice() {
  const int nice = getpriority(PRIO_PROCESS, 0);
  if (nice == 0 || getsid(0) != getpid()) return absl::OkStatus();
  const net::UniqueFd file(open(kFile, O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return errno == ENOENT ? absl::OkStatus() : absl::ErrnoToStatus(errno, kFile);
  const std::string text = absl::StrCat(nice);
  for (int tried = 1; write(file.get(), text.data(), text.size()) < 0; ++tried) {
    if (errno != EAGAIN || tried == kTriesMax) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", nice, " to ", kFile));
    }
    absl::SleepFor(kBetweenTries);
  }
  return absl::OkStatus();
}

absl::Status ShortenSlices() {
  SchedAttributes attributes;
  if (!GetSched(attributes)) return absl::ErrnoToStatus(errno, "sched_getattr");
  if (attributes.policy != SCHED_OTHER) return absl::OkStatus();
  attributes.runtime_ns = kSlice_ns;
  return SetSched(attributes) ? absl::OkStatus() : absl::ErrnoToStatus(errno, "sched_setattr");
}

}  // namespace hedgerow::node
