// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/partial.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cluster/storage/errors.h"

namespace hedgerow::transfer {
namespace {

// So that the last sync, and with it the log's, does not wait for all of it.
constexpr uint64_t kSyncEvery_bytes = 4 * 1024 * 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<Partial>> Partial::Begin(const storage::SnapshotFolder& folder, raft::NodeId from,
                                                        const v1::Offer& offer) {
  std::unique_ptr<Partial> partial(new Partial(from, offer));
  partial->path_ = folder.UnfinishedPathOf(partial->last(), "receiving");
  partial->file_ = net::UniqueFd(open(partial->path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!partial->file_.valid()) return storage::FromErrno(partial->path_, "make", errno);
  // Where the file system cannot, a write will fail. A leader must not send a gigabyte to find out.
  const auto size = static_cast<off_t>(offer.size_bytes());
  if (size <= 0) return absl::DataLossError("a file without bytes is no snapshot");
  const int error = fallocate(partial->file_.get(), FALLOC_FL_KEEP_SIZE, 0, size) == 0 ? 0 : errno;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return storage::FromErrno(partial->path_, absl::StrCat("find ", size, " bytes for"), error);
  }
  return partial;
}

Partial::~Partial() {
  if (!path_.empty()) (void)unlink(path_.c_str());
}

raft::EntryId Partial::last() const {
  return {.index = raft::LogIndex(offer_.last_index()), .term = raft::Term(offer_.last_term())};
}

bool Partial::IsOf(raft::NodeId from, const v1::Offer& offer) const {
  return from_ == from && offer_.last_index() == offer.last_index() && offer_.last_term() == offer.last_term() &&
         offer_.size_bytes() == offer.size_bytes() && offer_.checksum() == offer.checksum();
}

absl::Status Partial::Append(std::string_view bytes) {
  if (bytes.size() > size_bytes() - offset_) return absl::DataLossError("more came than was offered");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written =
        pwrite(file_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset_ + done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return storage::FromErrno(path_, "write", errno);
    done += static_cast<size_t>(written);
  }
  checksum_ = static_cast<uint32_t>(
      crc32(checksum_, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  offset_ += bytes.size();
  unsynced_bytes_ += bytes.size();
  if (unsynced_bytes_ < kSyncEvery_bytes) return absl::OkStatus();
  unsynced_bytes_ = 0;
  return fdatasync(file_.get()) == 0 ? absl::OkStatus() : storage::FromErrno(path_, "sync", errno);
}

absl::Status Partial::Finish() {
  if (checksum_ != offer_.checksum()) {
    return absl::DataLossError("what arrived has another checksum than what was offered");
  }
  return fsync(file_.get()) == 0 ? absl::OkStatus() : storage::FromErrno(path_, "sync", errno);
}

}  // namespace hedgerow::transfer
