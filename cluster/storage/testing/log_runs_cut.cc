// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/log_runs_cut.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "cluster/storage/segment_file.h"

namespace hedgerow::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSector_bytes = 512;

// The page cache is written back in no order that one could count on: all of what was not synced may be lost,
// which makes the log as old as it can be; or what comes behind some place; or any sectors.
enum class Taken : uint8_t { kAll, kEnd, kSectors };

void AddNames(const fs::path& folder, std::set<std::string>& names) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
}

std::string Tear(std::string written, std::string synced, Taken taken, std::mt19937_64& random) {
  synced.resize(std::max(written.size(), synced.size()));
  written.resize(synced.size());
  const size_t sectors = written.size() / kSector_bytes + 1;
  const size_t from = random() % sectors;
  for (size_t sector = 0; sector < sectors; ++sector) {
    const bool lost = taken == Taken::kAll || (taken == Taken::kEnd ? sector >= from : random() % 2 == 0);
    const size_t place = sector * kSector_bytes;
    const size_t size = std::min(kSector_bytes, written.size() - place);
    if (lost) written.replace(place, size, synced, place, size);
  }
  return written;
}

}  // namespace

std::string SyncedFolderOf(const TestFolder& folder) { return folder.path() + "/synced"; }
std::string RemovedFolderOf(const TestFolder& folder) { return folder.path() + "/removed"; }
std::string RefusedWritesOf(const TestFolder& folder) { return folder.path() + "/refused"; }

CutLosses CutPower(const TestFolder& before, const TestFolder& after, uint64_t seed) {
  std::mt19937_64 random(seed);
  const Taken taken = static_cast<Taken>(random() % 3);
  fs::remove_all(after.path());
  fs::create_directories(after.path());
  fs::copy(before.log(), after.log(), fs::copy_options::recursive);
  const fs::path segments = SegmentFolderOf(after.log());
  const fs::path synced = SyncedFolderOf(before);
  const fs::path removed = RemovedFolderOf(before);
  std::set<std::string> names;
  AddNames(segments, names);
  AddNames(synced, names);
  CutLosses losses;
  for (const std::string& name : names) {
    const bool was_removed = !fs::exists(segments / name);
    if (was_removed && random() % 2 == 0) continue;
    const std::string written = ReadFile((was_removed ? removed : segments) / name);
    // Names are synced before a file is used.
    const std::string found =
        fs::exists(synced / name) ? Tear(written, ReadFile(synced / name), taken, random) : written;
    losses.files_torn += found != written;
    losses.removals_undone += was_removed;
    WriteFile(segments / name, found);
  }
  return losses;
}

}  // namespace hedgerow::storage
