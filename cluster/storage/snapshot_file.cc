// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/snapshot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/raft/configuration.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/raft/bytes.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

constexpr std::string_view kMagic = "hedgerow snapshot\n";
constexpr std::string_view kHeaderKey = "header";
constexpr size_t kHeaderFixed_bytes = 3 * 8 + 2;
constexpr size_t kConfigurationMax_bytes = 8192;  // far above any: a bound for what is read
// So that a file's last sync, and with it the log's, does not wait for all of it.
constexpr uint64_t kSyncEvery_bytes = 4 * 1024 * 1024;

// Where a chunk belongs.
std::string ChunkKey(const raft::EntryId& last, uint64_t number) {
  std::string key;
  AppendNumber<uint64_t>(key, last.index.value());
  AppendNumber<uint64_t>(key, last.term.value());
  AppendNumber<uint64_t>(key, number);
  return key;
}

std::string EncodeHeader(const SnapshotHeader& header) {
  const raft::Snapshot& snapshot = header.snapshot;
  std::string body;
  AppendNumber<uint64_t>(body, header.cluster_id);
  AppendNumber<uint64_t>(body, snapshot.last.index.value());
  AppendNumber<uint64_t>(body, snapshot.last.term.value());
  const std::string configuration = raft::EncodeConfiguration(snapshot.configuration);
  AppendNumber<uint16_t>(body, configuration.size());
  body += configuration;
  std::string bytes(kMagic);
  AppendNumber<uint32_t>(bytes, kSnapshotVersion);
  AppendNumber<uint32_t>(bytes, body.size());
  bytes += body;
  AppendNumber<uint32_t>(bytes, Checksum(kHeaderKey, bytes));
  return bytes;
}

std::string EncodeEnd(const raft::EntryId& last, uint64_t chunks, uint64_t chunk_bytes) {
  std::string body;
  AppendNumber<uint64_t>(body, chunks);
  AppendNumber<uint64_t>(body, chunk_bytes);
  std::string bytes;
  AppendNumber<uint32_t>(bytes, 0);
  AppendNumber<uint32_t>(bytes, Checksum(ChunkKey(last, chunks), body));
  return bytes + body;
}

// Nothing: it is none.
std::optional<raft::Configuration> ReadConfiguration(ByteReader& reader, uint64_t version) {
  const uint64_t size = reader.Get<uint16_t>();
  if (version > 1) {
    const std::string_view rest = reader.GetRest();
    return rest.size() == size ? raft::DecodeConfiguration(rest) : std::nullopt;
  }
  std::vector<raft::NodeId> voters;
  for (uint64_t i = 0; i < size && i < HR_RAFT_MAX_MEMBERS; ++i) {
    voters.push_back(raft::NodeId(reader.Get<uint64_t>()));
  }
  return raft::Configuration::OfVoters(voters);
}

}  // namespace

absl::StatusOr<SnapshotFileWriter> SnapshotFileWriter::Create(const std::string& path, const SnapshotHeader& header) {
  net::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return FromErrno(path, "make", errno);
  SnapshotFileWriter writer(path, header, std::move(file));
  if (absl::Status status = writer.Write(EncodeHeader(header)); !status.ok()) return status;
  return writer;
}

absl::Status SnapshotFileWriter::Append(std::string_view chunk) {
  HEDGEROW_CHECK(!chunk.empty() && chunk.size() <= kSnapshotChunkMax_bytes);
  std::string head;
  AppendNumber<uint32_t>(head, chunk.size());
  AppendNumber<uint32_t>(head, Checksum(ChunkKey(header_.snapshot.last, chunks_), chunk));
  if (absl::Status status = Write(head); !status.ok()) return status;
  if (absl::Status status = Write(chunk); !status.ok()) return status;
  ++chunks_;
  chunk_bytes_ += chunk.size();
  if (unsynced_bytes_ < kSyncEvery_bytes) return absl::OkStatus();
  unsynced_bytes_ = 0;
  return fdatasync(file_.get()) == 0 ? absl::OkStatus() : FromErrno(path_, "sync", errno);
}

absl::Status SnapshotFileWriter::Finish() {
  if (absl::Status status = Write(EncodeEnd(header_.snapshot.last, chunks_, chunk_bytes_)); !status.ok()) {
    return status;
  }
  return fsync(file_.get()) == 0 ? absl::OkStatus() : FromErrno(path_, "sync", errno);
}

absl::Status SnapshotFileWriter::Write(std::string_view bytes) {
  unsynced_bytes_ += bytes.size();
  size_bytes_ += bytes.size();
  return WriteAll(file_.get(), path_, bytes);
}

absl::StatusOr<SnapshotFileWriter> SnapshotFileWriter::CreateBehind(const std::string& path, std::string_view before,
                                                                    const SnapshotHeader& header) {
  net::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() && errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
  if (!file.valid()) return FromErrno(path, "make", errno);
  SnapshotFileWriter writer(path, header, std::move(file));
  for (const std::string& bytes : {std::string(before), EncodeHeader(header)}) {
    if (absl::Status status = writer.Write(bytes); !status.ok()) return status;
  }
  return writer;
}

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const std::string& path, uint64_t offset) {
  net::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return FromErrno(path, "open", errno);
  if (lseek(file.get(), static_cast<off_t>(offset), SEEK_SET) < 0) return FromErrno(path, "read", errno);
  (void)posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(path, std::move(file)));
  if (absl::Status status = reader->ReadHeader(); !status.ok()) return status;
  return reader;
}

void SnapshotReader::ReportTo(LoadProgress& progress) {
  struct stat file {};
  const bool known = fstat(file_.get(), &file) == 0;
  progress.Begin(LoadProgress::Stage::kSnapshot, known ? static_cast<uint64_t>(file.st_size) : 0);
  progress_ = &progress;
}

absl::Status SnapshotReader::Damaged(const std::string& what) const {
  return absl::DataLossError(absl::StrCat("the snapshot ", path_, " is damaged: ", what));
}

absl::Status SnapshotReader::ReadHeader() {
  const absl::StatusOr<std::string> fixed = Read(kMagic.size() + 8);
  if (!fixed.ok()) return fixed.status();
  if (std::string_view(*fixed).substr(0, kMagic.size()) != kMagic) return Damaged("it is no snapshot");
  ByteReader sizes(std::string_view(*fixed).substr(kMagic.size()));
  const uint64_t version = sizes.Get<uint32_t>();
  const uint64_t length = sizes.Get<uint32_t>();
  if (version > kSnapshotVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the snapshot ", path_, " has format ", version,
                                                      ", and this program reads formats up to ", kSnapshotVersion,
                                                      ": start the version of the program that wrote it"));
  }
  if (length < kHeaderFixed_bytes || length > kHeaderFixed_bytes + kConfigurationMax_bytes) {
    return Damaged("its header has a wrong length");
  }
  const absl::StatusOr<std::string> rest = Read(length + 4);
  if (!rest.ok()) return rest.status();
  const std::string_view body = std::string_view(*rest).substr(0, length);
  ByteReader checksum(std::string_view(*rest).substr(length));
  if (checksum.Get<uint32_t>() != Checksum(kHeaderKey, absl::StrCat(*fixed, rest->substr(0, length)))) {
    return Damaged("its header has a wrong checksum");
  }
  ByteReader reader(body);
  header_.cluster_id = reader.Get<uint64_t>();
  header_.snapshot.last.index = raft::LogIndex(reader.Get<uint64_t>());
  header_.snapshot.last.term = raft::Term(reader.Get<uint64_t>());
  std::optional<raft::Configuration> configuration = ReadConfiguration(reader, version);
  if (!reader.done()) return Damaged("its header has a wrong length");
  if (!configuration.has_value()) return Damaged("its header has no configuration");
  header_.snapshot.configuration = *std::move(configuration);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> SnapshotReader::Next() {
  if (ended_) return std::nullopt;
  const absl::StatusOr<std::string> head = Read(8);
  if (!head.ok()) return head.status();
  ByteReader reader(*head);
  const uint64_t length = reader.Get<uint32_t>();
  const uint64_t checksum = reader.Get<uint32_t>();
  if (length == 0) {
    if (absl::Status status = ReadEnd(checksum); !status.ok()) return status;
    ended_ = true;
    return std::nullopt;
  }
  if (length > kSnapshotChunkMax_bytes) return Damaged(absl::StrCat("chunk ", chunks_, " has a wrong length"));
  absl::StatusOr<std::string> chunk = Read(length);
  if (!chunk.ok()) return chunk.status();
  if (checksum != Checksum(ChunkKey(header_.snapshot.last, chunks_), *chunk)) {
    return Damaged(absl::StrCat("chunk ", chunks_, " has a wrong checksum"));
  }
  ++chunks_;
  chunk_bytes_ += length;
  return std::optional<std::string>(*std::move(chunk));
}

absl::Status SnapshotReader::ReadEnd(uint64_t checksum) {
  const absl::StatusOr<std::string> body = Read(16);
  if (!body.ok()) return body.status();
  ByteReader reader(*body);
  if (checksum != Checksum(ChunkKey(header_.snapshot.last, chunks_), *body) || reader.Get<uint64_t>() != chunks_ ||
      reader.Get<uint64_t>() != chunk_bytes_) {
    return Damaged("its end does not fit what comes before it");
  }
  char more = 0;
  return read(file_.get(), &more, 1) == 0 ? absl::OkStatus() : Damaged("something comes after its end");
}

absl::StatusOr<std::string> SnapshotReader::Read(size_t bytes) {
  std::string result(bytes, '\0');
  size_t have = 0;
  while (have < bytes) {
    const ssize_t got = read(file_.get(), result.data() + have, bytes - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(path_, "read", errno);
    if (got == 0) return Damaged("it is cut short");
    have += static_cast<size_t>(got);
    if (progress_ != nullptr) progress_->Add(static_cast<uint64_t>(got));
  }
  return result;
}

}  // namespace hedgerow::storage
