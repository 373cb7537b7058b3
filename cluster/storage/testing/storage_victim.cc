// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/storage_victim.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "cluster/raft/check.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

// Each sequence that is durable as 8 bytes to `reports`.
void WriteForEver(const TestFolder& folder, bool sync, uint64_t seed, int reports) {
  constexpr uint64_t kInFlight = 32;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder, sync));
  Story story(seed, storage->TakeRestored(), /*with_snapshots=*/true);
  uint64_t written = 0;
  uint64_t reported = 0;
  while (true) {
    const uint64_t durable = storage->TakeDurable();
    if (durable > reported) {
      reported = durable;
      if (write(reports, &reported, sizeof(reported)) != sizeof(reported)) return;
    }
    if (written < durable + kInFlight) {
      raft::Persist persist = story.Next();
      written = persist.sequence;
      WriteWithSnapshot(*storage, std::move(persist));
    } else {
      pollfd event = {.fd = storage->event_fd(), .events = POLLIN, .revents = 0};
      (void)poll(&event, 1, 1000);
      storage->ReadEvent();
    }
  }
}

}  // namespace

pid_t Fork(const std::function<void()>& life) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  HEDGEROW_CHECK(pid >= 0);
  if (pid != 0) return pid;
  life();
  _exit(0);
}

int Await(pid_t process) {
  int status = 0;
  HEDGEROW_CHECK(waitpid(process, &status, 0) == process);
  return status;
}

Victim::Victim(const std::string& folder, bool sync, uint64_t seed) {
  int ends[2];
  HEDGEROW_CHECK(pipe(ends) == 0);
  out_ = net::UniqueFd(ends[0]);
  const net::UniqueFd in(ends[1]);
  pid_ = Fork([&] {
    out_ = net::UniqueFd();
    WriteForEver(TestFolder(folder), sync, seed, in.get());
  });
}

Victim::~Victim() {
  if (pid_ > 0) Kill();
}

uint64_t Victim::Kill() {
  kill(pid_, SIGKILL);
  const int status = Await(std::exchange(pid_, -1));
  killed_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  while (ReadReport()) {
  }
  return reported_;
}

bool Victim::ReadReport() {
  uint64_t sequence = 0;
  if (read(out_.get(), &sequence, sizeof(sequence)) != sizeof(sequence)) return false;
  EXPECT_GT(sequence, reported_);
  reported_ = sequence;
  return true;
}

}  // namespace hedgerow::storage
