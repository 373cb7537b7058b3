// SPDX-License-Identifier: Apache-2.0
//
// Writes a story to a log as fast as it can and says on its standard output, as 8 bytes each, which sequence is
// durable, until it is killed. Started and killed by tests, through
// storage_victim.h.

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cluster/storage/testing/storage_story.h"

int main(int argc, char** argv) {
  using namespace hedgerow::storage;  // NOLINT(google-build-using-namespace)
  if (argc != 4) {
    std::fprintf(stderr, "usage: hr-storage-victim FOLDER disk|memory SEED\n");
    return 2;
  }
  const TestFolder folder{std::string(argv[1])};
  const bool sync = std::string_view(argv[2]) == "disk";
  const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder, sync));
  Story story(std::strtoull(argv[3], nullptr, 10), storage->TakeRestored(), /*with_snapshots=*/true);

  constexpr uint64_t kInFlight = 32;
  uint64_t written = 0;
  uint64_t reported = 0;
  while (true) {
    const uint64_t durable = storage->TakeDurable();
    if (durable > reported) {
      reported = durable;
      if (write(STDOUT_FILENO, &reported, sizeof(reported)) != sizeof(reported)) return 1;
    }
    if (written < durable + kInFlight) {
      hedgerow::raft::Persist persist = story.Next();
      written = persist.sequence;
      WriteWithSnapshot(*storage, std::move(persist));
    } else {
      pollfd event = {.fd = storage->event_fd(), .events = POLLIN, .revents = 0};
      (void)poll(&event, 1, 1000);
      storage->ReadEvent();
    }
  }
}
