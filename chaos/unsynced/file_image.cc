// SPDX-License-Identifier: Apache-2.0
#include "chaos/unsynced/file_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "cluster/raft/check.h"

namespace hedgerow::unsynced {
namespace {

// Sectors that follow each other go to the object together.
constexpr size_t kStoreMax_bytes = 256 * 1024;

}  // namespace

FileImage::FileImage(net::UniqueFd object) : object_(std::move(object)) {
  size_ = ObjectSize();
  object_valid_ = size_;
}

uint64_t FileImage::ObjectSize() const {
  struct stat status {};
  HEDGEROW_CHECK(fstat(object_.get(), &status) == 0);
  return static_cast<uint64_t>(status.st_size);
}

// Zeros where the object has nothing of this file's.
void FileImage::ReadObject(char* to, size_t count, uint64_t offset) const {
  const uint64_t there = offset < object_valid_ ? std::min<uint64_t>(count, object_valid_ - offset) : 0;
  size_t done = 0;
  while (done < there) {
    const ssize_t got = pread(object_.get(), to + done, there - done, static_cast<off_t>(offset + done));
    HEDGEROW_CHECK(got >= 0);  // a test on a disk that fails proves nothing
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  std::memset(to + done, 0, count - done);
}

ssize_t FileImage::Read(char* to, size_t count, uint64_t offset) const {
  if (offset >= size_) return 0;
  count = static_cast<size_t>(std::min<uint64_t>(count, size_ - offset));
  ReadObject(to, count, offset);
  const uint64_t end = offset + count;
  for (auto sector = unsynced_.lower_bound(offset / kSector_bytes);
       sector != unsynced_.end() && sector->first * kSector_bytes < end; ++sector) {
    const uint64_t begin = sector->first * kSector_bytes;
    const uint64_t from = std::max(begin, offset);
    const uint64_t until = std::min(begin + kSector_bytes, end);
    std::memcpy(to + (from - offset), sector->second.data() + (from - begin), until - from);
  }
  return static_cast<ssize_t>(count);
}

FileImage::Sector& FileImage::Touch(uint64_t number) {
  const auto [sector, is_new] = unsynced_.try_emplace(number);
  if (is_new) ReadObject(sector->second.data(), kSector_bytes, number * kSector_bytes);
  return sector->second;
}

ssize_t FileImage::Write(const char* from, size_t count, uint64_t offset) {
  if (offset > kFileMax_bytes || count > kFileMax_bytes - offset) return -EFBIG;
  for (size_t done = 0; done < count;) {
    const uint64_t number = (offset + done) / kSector_bytes;
    const uint64_t within = (offset + done) % kSector_bytes;
    const size_t part = std::min<size_t>(count - done, kSector_bytes - within);
    std::memcpy(Touch(number).data() + within, from + done, part);
    done += part;
  }
  size_ = std::max(size_, offset + count);
  return static_cast<ssize_t>(count);
}

int FileImage::Truncate(uint64_t size) {
  if (size > kFileMax_bytes) return -EFBIG;
  if (size < size_) {
    unsynced_.erase(unsynced_.lower_bound((size + kSector_bytes - 1) / kSector_bytes), unsynced_.end());
    object_valid_ = std::min(object_valid_, size);
    // What is cut off reads as zeros when the file grows again.
    const auto last = unsynced_.find(size / kSector_bytes);
    if (last != unsynced_.end()) {
      std::memset(last->second.data() + size % kSector_bytes, 0, kSector_bytes - size % kSector_bytes);
    }
  }
  size_ = size;
  return 0;
}

int FileImage::Punch(uint64_t offset, uint64_t count) {
  if (offset >= size_) return 0;
  count = std::min(count, size_ - offset);
  const std::vector<char> zeros(std::min<uint64_t>(count, kStoreMax_bytes), 0);
  while (count > 0) {
    const ssize_t written = Write(zeros.data(), std::min<uint64_t>(count, zeros.size()), offset);
    if (written < 0) return static_cast<int>(written);
    offset += static_cast<uint64_t>(written);
    count -= static_cast<uint64_t>(written);
  }
  return 0;
}

// From the sector `first` on, and no further than the file goes.
int FileImage::Store(uint64_t first, const char* from, size_t count) const {
  const uint64_t offset = first * kSector_bytes;
  if (offset >= size_) return 0;
  count = static_cast<size_t>(std::min<uint64_t>(count, size_ - offset));
  for (size_t done = 0; done < count;) {
    const ssize_t put = pwrite(object_.get(), from + done, count - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno != EINTR) return -errno;
    if (put > 0) done += static_cast<size_t>(put);
  }
  return 0;
}

int FileImage::Sync() {
  if (ObjectSize() > object_valid_ && ftruncate(object_.get(), static_cast<off_t>(object_valid_)) != 0) {
    return -errno;
  }
  std::string run;
  for (auto sector = unsynced_.begin(); sector != unsynced_.end();) {
    const uint64_t first = sector->first;
    run.clear();
    for (; sector != unsynced_.end() && run.size() < kStoreMax_bytes &&
           sector->first == first + run.size() / kSector_bytes;
         ++sector) {
      run.append(sector->second.data(), sector->second.size());
    }
    if (const int error = Store(first, run.data(), run.size()); error != 0) return error;
  }
  if (ObjectSize() < size_ && ftruncate(object_.get(), static_cast<off_t>(size_)) != 0) return -errno;
  object_valid_ = size_;
  unsynced_.clear();
  return 0;
}

int FileImage::SyncSome(std::mt19937_64& random) {
  const auto heads = [&random] { return random() % 2 == 0; };
  if (ObjectSize() > object_valid_ && heads() && ftruncate(object_.get(), static_cast<off_t>(object_valid_)) != 0) {
    return -errno;
  }
  // File systems that are worth a log let a file grow over bytes that are there (ext4 with ordered data, XFS,
  // btrfs): what was appended is kept up to somewhere, without holes.
  const uint64_t end = ObjectSize();
  bool grows = true;
  for (const auto& [number, sector] : unsynced_) {
    if ((number + 1) * kSector_bytes > end) {
      grows = grows && random() % 4 != 0;
      if (!grows) break;
    } else if (!heads()) {
      continue;
    }
    if (const int error = Store(number, sector.data(), sector.size()); error != 0) return error;
  }
  if (grows && ObjectSize() < size_ && heads() && ftruncate(object_.get(), static_cast<off_t>(size_)) != 0) {
    return -errno;
  }
  return 0;
}

uint64_t FileImage::UnsyncedBytes() const {
  const uint64_t object_size = ObjectSize();
  uint64_t different = 0;
  Sector there{};
  for (const auto& [number, sector] : unsynced_) {
    const uint64_t begin = number * kSector_bytes;
    ReadObject(there.data(), kSector_bytes, begin);
    for (uint64_t i = 0; i < kSector_bytes && begin + i < size_; ++i) {
      different += begin + i >= object_size || sector[i] != there[i];
    }
  }
  return different;
}

}  // namespace hedgerow::unsynced
