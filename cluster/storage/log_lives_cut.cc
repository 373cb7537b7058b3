// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_lives_cut.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "cluster/storage/journal.h"

namespace hedgerow::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSector_bytes = 512;

// The page cache is written back in no order that one could count on: all of what was not synced may be lost,
// which makes the log as old as it can be; or parts of it, which makes gaps; or bytes only, where the file
// system had its journal written meanwhile.
enum class Taken : uint8_t { kAll, kParts, kBytes };

void AddNames(const fs::path& folder, std::set<std::string>& names) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
}

// From some place on behind what is synced it is cut off, or zero for a sector, or for good. Or it is all
// there.
std::string Tear(std::string bytes, size_t synced_bytes, std::mt19937_64& random) {
  if (bytes.size() <= synced_bytes) return bytes;
  const size_t from = synced_bytes + random() % (bytes.size() - synced_bytes);
  switch (random() % 4) {
    case 0:
      bytes.resize(from);
      break;
    case 1:
      std::fill_n(bytes.begin() + from, std::min(kSector_bytes, bytes.size() - from), '\0');
      break;
    case 2:
      std::fill(bytes.begin() + from, bytes.end(), '\0');
      break;
    default:
      break;
  }
  return bytes;
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
  const fs::path journal = JournalFolderOf(after.log());
  const fs::path synced = SyncedFolderOf(before);
  const fs::path removed = RemovedFolderOf(before);
  std::set<std::string> names;
  AddNames(journal, names);
  AddNames(synced, names);
  CutLosses losses;
  for (const std::string& name : names) {
    const bool is_synced = fs::exists(synced / name);
    const bool was_removed = !fs::exists(journal / name);
    if (was_removed && random() % 2 == 0) continue;
    if (!is_synced && (taken == Taken::kAll || (taken == Taken::kParts && random() % 2 == 0))) {
      fs::remove(journal / name);
      ++losses.files_gone;
      continue;
    }
    const std::string written = ReadFile((was_removed ? removed : journal) / name);
    const std::string kept = is_synced ? ReadFile(synced / name) : "";
    const std::string found = taken == Taken::kAll ? kept : Tear(written, kept.size(), random);
    losses.files_torn += found != written;
    losses.removals_undone += was_removed;
    WriteFile(journal / name, found);
  }
  return losses;
}

}  // namespace hedgerow::storage
