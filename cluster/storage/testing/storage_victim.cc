// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/storage_victim.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "cluster/raft/check.h"

extern char** environ;

namespace hedgerow::storage {

Victim::Victim(const std::string& folder, bool sync, uint64_t seed) {
  int ends[2];
  HEDGEROW_CHECK(pipe(ends) == 0);
  out_ = net::UniqueFd(ends[0]);
  const net::UniqueFd in(ends[1]);
  const std::string program = absl::StrCat(HEDGEROW_BUILD_DIR, "/bin/hr-storage-victim");
  std::string arguments[] = {program, folder, sync ? "disk" : "memory", absl::StrCat(seed)};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, out_.get());
  HEDGEROW_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
}

Victim::~Victim() {
  if (pid_ > 0) Kill();
}

uint64_t Victim::Kill() {
  kill(pid_, SIGKILL);
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
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
