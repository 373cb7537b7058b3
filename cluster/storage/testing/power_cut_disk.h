// SPDX-License-Identifier: Apache-2.0
//
// For power_cut_test and log_runs_test: stands in the place of some functions of the C library, in a program that links
// it, and writes down what is done to the files below a folder; then makes of it what a power cut at any point may
// leave: of the sectors that were not synced any of their contents since, each by itself, some torn in their midst (but
// for those of files that are one sector); of the names a first part. And it can be full. Of one thread. Folders are
// durable when they are made.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace hedgerow::storage {

struct DiskOperation {
  enum class Kind : uint8_t { kMake, kMakeFolder, kWrite, kRename, kRemove, kSync, kSyncFolder, kNote };
  Kind kind{};
  std::string path{};  // below the folder
  std::string to{};    // kRename
  size_t place = 0;
  std::string bytes{};
  uint64_t note = 0;  // the caller's own
};

// A disk that lies: a sync of these returns and covers nothing.
enum class Lies : uint8_t { kNone, kFiles, kFolders };

void RecordDisk(const std::string& folder, Lies lies = Lies::kNone);
void NoteOnDisk(uint64_t note);
// The next sync of a file throws this and does nothing: the process is killed, and what it wrote is in the page
// cache.
struct Killed {};
void KillAtNextSync();
void KillNoMore();
std::vector<DiskOperation> StopRecording();

// Now and then, at moments that the seed draws, until FreeDisk: a write ends in its midst, and the next ones fail.
void FillDisk(uint64_t seed);
// Gives how many writes, or parts of them, it had no room for.
uint64_t FreeDisk();

class RecordedDisk {
 public:
  // What is in `folder` is on the disk, before the first operation; but for what is below `unsynced` in it, of which
  // the names are.
  explicit RecordedDisk(const std::string& folder, const std::string& unsynced = "nothing");
  void Do(const DiskOperation& operation);
  // In an empty folder, what a power cut at this point leaves.
  void Leave(const std::string& folder, std::mt19937_64& random) const;

 private:
  struct Write {
    size_t place = 0;
    std::string bytes{};
  };
  struct File {
    std::string synced{};
    std::vector<Write> unsynced{};
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;
  struct Change {
    std::string name{};
    std::shared_ptr<File> file{};  // null: it goes
  };
  static void Apply(const Change& change, Names& names);
  void ChangeName(Change change);
  static std::string ContentsAfterCut(const File& file, std::mt19937_64& random);

  Names live_;
  Names durable_;
  std::set<std::string> folders_;
  std::map<std::string, std::vector<std::vector<Change>>> changes_;  // by folder; each happens at once
};

}  // namespace hedgerow::storage
