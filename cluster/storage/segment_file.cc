// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/segment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>

#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/raft/bytes.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

constexpr std::string_view kMagic = "hrsegm\r\n";
constexpr size_t kSealed_bytes = kMagic.size() + 2 * 8;
// Zeros of a new file are synced in pieces, so that the log's own sync does not wait behind all of them.
constexpr size_t kPiece_bytes = 512 * 1024;

std::string EncodeHeader(uint64_t copy_id, uint64_t salt) {
  std::string bytes(kMagic);
  AppendNumber<uint64_t>(bytes, copy_id);
  AppendNumber<uint64_t>(bytes, salt);
  AppendNumber<uint32_t>(bytes, Checksum(bytes, ""));
  bytes.resize(kPage_bytes);
  return bytes;
}

// 0: it was torn when it was written, or it is of another log.
uint64_t SaltOf(std::string_view bytes, uint64_t copy_id) {
  if (bytes.size() < kPage_bytes || !bytes.starts_with(kMagic)) return 0;
  ByteReader reader(bytes.substr(kMagic.size(), 2 * 8 + 4));
  const uint64_t of = reader.Get<uint64_t>();
  const uint64_t salt = reader.Get<uint64_t>();
  return of == copy_id && reader.Get<uint32_t>() == Checksum(bytes.substr(0, kSealed_bytes), "") ? salt : 0;
}

uint64_t DrawSalt() {
  std::random_device device;
  uint64_t salt = 0;
  while (salt == 0) salt = static_cast<uint64_t>(device()) << 32 | device();
  return salt;
}

absl::Status FillWithZeros(const net::UniqueFd& file, const std::string& path, size_t bytes) {
  const std::string zeros(std::min(bytes, kPiece_bytes), '\0');
  for (size_t place = 0; place < bytes; place += zeros.size()) {
    const size_t size = std::min(zeros.size(), bytes - place);
    if (absl::Status status = WriteAt(file, path, std::string_view(zeros).substr(0, size), place); !status.ok())
      return status;
    if (fdatasync(file.get()) != 0) return FromErrno(path, "sync", errno);
  }
  return absl::OkStatus();
}

// On the disk before the first record is written: else a power cut could leave the former use's header above
// records that the new one has partly written over, which would look like damage.
absl::StatusOr<OpenSegment> Begin(net::UniqueFd file, const std::string& path, uint64_t copy_id) {
  OpenSegment segment{.file = std::move(file), .salt = DrawSalt()};
  if (absl::Status status = WriteAt(segment.file, path, EncodeHeader(copy_id, segment.salt), 0); !status.ok())
    return status;
  if (fdatasync(segment.file.get()) != 0) return FromErrno(path, "sync", errno);
  return segment;
}

absl::StatusOr<OpenSegment> Make(const std::string& path, uint64_t copy_id, size_t bytes, bool written) {
  net::UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return FromErrno(path, "make", errno);
  // Only a disk that is full matters: without the call a file grows as it is written to.
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && (errno == ENOSPC || errno == EDQUOT))
    return FromErrno(path, "make", errno);
  if (written) {
    if (absl::Status status = FillWithZeros(file, path, bytes); !status.ok()) return status;
  }
  absl::StatusOr<OpenSegment> segment = Begin(std::move(file), path, copy_id);
  if (!segment.ok()) return segment.status();
  if (absl::Status status = SyncParent(path); !status.ok()) return status;
  return segment;
}

// The number of a batch after `batch` that a record in a file may have; what stands there is checked then.
bool MayFollow(uint64_t number, uint64_t batch, size_t file_bytes) {
  return number > batch && (batch == 0 || number - batch <= file_bytes / kRecordMin_bytes);
}

// From `place` on, where it may have to look for a first one behind what is broken.
std::optional<RecordRange> FindRange(std::string_view bytes, uint64_t salt, size_t place, uint64_t after) {
  size_t size = 0;
  RecordRange range;
  for (range.begin = place; size == 0; range.begin += kRecordAlign_bytes) {
    const std::string_view rest = bytes.substr(std::min(range.begin, bytes.size()));
    if (rest.size() < kRecordMin_bytes) return std::nullopt;
    range.first_batch = BatchNumber(rest);
    if (MayFollow(range.first_batch, after, bytes.size())) size = RecordSize(rest, salt, range.first_batch);
    if (size > 0) break;
  }
  range.end = range.begin;
  range.last_batch = range.first_batch - 1;
  while (size > 0) {
    const std::optional<StateRecord> state = ParseState(bytes.substr(range.end, size));
    range.reached = std::max(range.reached, state->last_index);
    range.end += size;
    ++range.last_batch;
    size = RecordSize(bytes.substr(range.end), salt, range.last_batch + 1);
  }
  return range;
}

}  // namespace

std::string SegmentFolderOf(const std::string& log_path) { return log_path + "/segments"; }

absl::StatusOr<OpenSegment> MakeSegment(const std::string& path, uint64_t copy_id, size_t bytes, bool written) {
  absl::StatusOr<OpenSegment> segment = Make(path, copy_id, bytes, written);
  if (!segment.ok()) (void)unlink(path.c_str());
  return segment;
}

absl::StatusOr<OpenSegment> RecycleSegment(const std::string& path, uint64_t copy_id) {
  net::UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return FromErrno(path, "open", errno);
  return Begin(std::move(file), path, copy_id);
}

absl::Status WriteAt(const net::UniqueFd& file, const std::string& path, std::string_view bytes, size_t place) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(place));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FromErrno(path, "write", written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<size_t>(written));
    place += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSegment(const std::string& path) {
  const net::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return FromErrno(path, "open", errno);
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t read = pread(file.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return FromErrno(path, "read", errno);
    if (read == 0) bytes.resize(done);
    done += static_cast<size_t>(read);
  }
  return bytes;
}

SegmentContents LookInto(std::string_view bytes, uint64_t copy_id) {
  SegmentContents contents{.salt = SaltOf(bytes, copy_id)};
  if (contents.salt == 0) return contents;
  size_t place = kPage_bytes;
  uint64_t after = 0;
  while (const std::optional<RecordRange> range = FindRange(bytes, contents.salt, place, after)) {
    contents.ranges.push_back(*range);
    place = range->end;
    after = range->last_batch;
  }
  return contents;
}

}  // namespace hedgerow::storage
