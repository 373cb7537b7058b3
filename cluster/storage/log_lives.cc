// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_lives.h"

#include <array>

#include "cluster/raft/check.h"

namespace hedgerow::storage {
namespace {

// An open takes 3 to 20 ms, after how busy the machine is. The earlier moments are drawn more often, so that
// they are spread over an open that is fast as well.
uint64_t MomentOfOpen_us(std::mt19937_64& random) { return 1 + (random() % 200) * (random() % 100); }

constexpr uint64_t kBatchesAtMost = 150;
// From a file for nearly every batch, so that starts fall on the ends of files, to one for most of a life.
constexpr std::array<size_t, 4> kSegment_bytes = {8'192, 12'288, 32'768, 131'072};

Life DrawLife(std::mt19937_64& random) {
  Life life;
  life.sync = random() % 3 == 0;
  for (uint64_t killed = random() % 3; killed > 0; --killed)
    life.killed_opens_us.push_back(MomentOfOpen_us(random));
  life.story_seed = random();
  life.batches = 1 + random() % kBatchesAtMost;
  life.disk_fills_up = random() % 3 == 0;
  life.killed = random() % 3 != 0;
  life.read_when_stopped = random() % 2 == 0;
  // In disk mode nothing is left that a power cut could take.
  life.power_cut = random() % 2 == 0 && !life.sync;
  life.power_cut_seed = random();
  return life;
}

}  // namespace

LogLives LivesOf(uint64_t seed) {
  std::mt19937_64 random(seed);
  LogLives lives;
  lives.segment_bytes = kSegment_bytes[random() % kSegment_bytes.size()];
  for (uint64_t left = 2 + random() % 8; left > 0; --left) lives.lives.push_back(DrawLife(random));
  return lives;
}

LifeTeller::LifeTeller(const Life& life, const raft::RestoredState& before)
    : batches_(life.batches),
      story_(life.story_seed, before, /*with_snapshots=*/true),
      random_(~life.story_seed) {}

LivedBatch LifeTeller::Next() {
  HEDGEROW_CHECK(!over());
  ++told_;
  LivedBatch batch;
  for (uint64_t persists = 1 + random_() % 4; persists > 0; --persists) batch.persists.push_back(story_.Next());
  batch.start_becomes_durable = random_() % 12 == 0;
  batch.drops = random_() % 3 == 0;
  return batch;
}

raft::RestoredState StateBefore(const LogLives& lives, size_t life) {
  raft::RestoredState state;
  for (size_t i = 0; i < life; ++i) {
    LifeTeller teller(lives.lives[i], state);
    while (!teller.over()) (void)teller.Next();
    state = teller.state();
  }
  return state;
}

StorageOptions LivesOptions(const TestFolder& folder, const LogLives& lives, bool sync,
                            std::string_view boot_id) {
  StorageOptions options;
  options.path = folder.log();
  options.sync = sync;
  options.segment_bytes = lives.segment_bytes;
  options.boot_id = boot_id;
  return options;
}

}  // namespace hedgerow::storage
