// SPDX-License-Identifier: Apache-2.0
//
// One file's bytes on a disk that can lose power: what was synced lies in a file of the backing folder, what
// was not is held in memory, sector by sector, and laid over it for readers. A power cut is then nothing but
// forgetting the memory. It knows no names and no locks; Disk does.

#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>

#include "net/unique_fd.h"

namespace hedgerow::unsynced {

class FileImage {
 public:
  // What disks write as a whole.
  static constexpr uint64_t kSector_bytes = 512;
  // A hole in a file costs nothing, but an offset is a signed number.
  static constexpr uint64_t kFileMax_bytes = uint64_t{1} << 40;

  // `object` is open for reading and writing; what is in it counts as synced.
  explicit FileImage(net::UniqueFd object);

  // As the system calls, but that they return -errno.
  ssize_t Read(char* to, size_t count, uint64_t offset) const;
  ssize_t Write(const char* from, size_t count, uint64_t offset);
  int Truncate(uint64_t size);
  // Zeros, within the size.
  int Punch(uint64_t offset, uint64_t count);

  uint64_t size() const { return size_; }
  int object() const { return object_.get(); }

  // Everything is in the object afterwards. It does not wait for the backing folder's own disk.
  int Sync();
  // What a disk does that is cut off while it writes: of what was overwritten some sectors reach the object, of
  // what was appended the first ones, and some changes of size do. What is still unsynced then is to be
  // forgotten.
  int SyncSome(std::mt19937_64& random);
  // Unsynced bytes that differ from what the object has in their place.
  uint64_t UnsyncedBytes() const;

 private:
  using Sector = std::array<char, kSector_bytes>;

  Sector& Touch(uint64_t number);
  void ReadObject(char* to, size_t count, uint64_t offset) const;
  int Store(uint64_t first, const char* from, size_t count) const;
  uint64_t ObjectSize() const;

  net::UniqueFd object_;
  uint64_t size_ = 0;
  // Of the object, bytes from here on are none of the file's: it was cut there, and perhaps has grown again.
  uint64_t object_valid_ = 0;
  std::map<uint64_t, Sector> unsynced_;  // by number; whole, also where only a part was written
};

}  // namespace hedgerow::unsynced
