// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/journal_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/storage/batch_state.h"
#include "cluster/storage/descriptor.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/journal.h"
#include "cluster/storage/record_bytes.h"

namespace hedgerow::storage {
namespace {

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file.ok() || fstat(file.get(), &about) != 0) return FromErrno(path, "open", errno);
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

struct Header {
  uint64_t first_batch = 0;
  raft::LogIndex reached{};
};

// Nothing: it was torn when it was made, or it is of another log.
std::optional<Header> ParseHeader(std::string_view bytes, uint64_t log_id) {
  if (bytes.size() < kJournalHeader_bytes || !bytes.starts_with(kJournalMagic)) return std::nullopt;
  RecordReader reader(bytes.substr(kJournalMagic.size(), kJournalHeader_bytes - kJournalMagic.size()));
  const uint64_t of = reader.Number(8);
  Header header{.first_batch = reader.Number(8)};
  header.reached = raft::LogIndex(reader.Number(8));
  const uint64_t checksum = reader.Number(4);
  const bool whole = of == log_id && checksum == JournalChecksum(log_id, header.first_batch,
                                                                 bytes.substr(0, kJournalHeader_bytes - 4));
  return whole ? std::optional(header) : std::nullopt;
}

// The batch with this number from the front of `bytes`, which is shortened by it. Nothing: it is not whole.
std::optional<std::string_view> TakeRecord(std::string_view& bytes, uint64_t log_id, uint64_t batch) {
  if (bytes.size() < kJournalRecordHead_bytes) return std::nullopt;
  RecordReader reader(bytes.substr(0, kJournalRecordHead_bytes));
  const size_t size = reader.Number(4);
  const uint64_t checksum = reader.Number(4);
  const uint64_t number = reader.Number(8);
  if (number != batch || size > bytes.size() - kJournalRecordHead_bytes) return std::nullopt;
  const std::string_view record = bytes.substr(kJournalRecordHead_bytes, size);
  if (checksum != JournalChecksum(log_id, batch, record)) return std::nullopt;
  bytes.remove_prefix(kJournalRecordHead_bytes + size);
  return record;
}

}  // namespace

absl::StatusOr<JournalReader> JournalReader::Open(const std::string& log_path, uint64_t log_id,
                                                  uint64_t batch_in_tables) {
  JournalReader reader;
  reader.log_id_ = log_id;
  reader.batch_in_tables_ = reader.last_batch_ = batch_in_tables;
  const std::string folder = JournalFolderOf(log_path);
  if (access(folder.c_str(), F_OK) != 0) return reader;
  std::error_code error;
  std::vector<File> found;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, error)) {
    absl::StatusOr<File> file = Look(entry.path().native(), log_id);
    if (!file.ok()) return file.status();
    if (file->last_batch > batch_in_tables && file->last_batch >= file->first_batch)
      found.push_back(*std::move(file));
  }
  if (error) return FromErrno(folder, "read", error.value());
  std::sort(found.begin(), found.end(),
            [](const File& a, const File& b) { return a.first_batch < b.first_batch; });
  reader.Choose(std::move(found), batch_in_tables);
  return reader;
}

absl::StatusOr<JournalReader::File> JournalReader::Look(const std::string& path, uint64_t log_id) {
  const absl::StatusOr<std::string> bytes = ReadAll(path);
  if (!bytes.ok()) return bytes.status();
  File file{.path = path, .bytes = bytes->size()};
  const std::optional<Header> header = ParseHeader(*bytes, log_id);
  if (!header.has_value()) return file;
  file.first_batch = header->first_batch;
  file.last_batch = header->first_batch - 1;
  file.reached = header->reached;
  std::string_view rest = std::string_view(*bytes).substr(kJournalHeader_bytes);
  std::string_view last;
  while (const std::optional<std::string_view> record = TakeRecord(rest, log_id, file.last_batch + 1)) {
    ++file.last_batch;
    last = *record;
  }
  if (last.empty()) return file;
  const std::optional<StateRecord> state = StateOf(rocksdb::WriteBatch(std::string(last)));
  if (!state.has_value() || state->batch != file.last_batch) {
    return DamagedError(path, absl::StrCat("batch ", file.last_batch, " of it is none"));
  }
  file.log_begins = state->start.index;
  return file;
}

// Files follow each other in runs, with gaps between them; the first run may follow the tables. What stood in a
// gap is not needed if the log begins, as it was left, after all that it had reached when the gap ended.
void JournalReader::Choose(std::vector<File> found, uint64_t batch_in_tables) {
  while (!found.empty()) {
    auto run = std::prev(found.end());
    while (run != found.begin() && std::prev(run)->last_batch + 1 >= run->first_batch) --run;
    const bool follows = run == found.begin() && run->first_batch <= batch_in_tables + 1;
    if (follows || found.back().log_begins >= run->reached) {
      last_batch_ = found.back().last_batch;
      files_.assign(std::make_move_iterator(run), std::make_move_iterator(found.end()));
      return;
    }
    const uint64_t before = run == found.begin() ? batch_in_tables : std::prev(run)->last_batch;
    damage_ = absl::StrCat("its journal holds batch ", run->first_batch, " right after batch ", before,
                           "; what stood between them is gone");
    found.erase(run, found.end());
  }
}

size_t JournalReader::bytes() const {
  size_t bytes = 0;
  for (const File& file : files_) bytes += file.bytes;
  return bytes;
}

absl::Status JournalReader::ForEach(const std::function<absl::Status(rocksdb::WriteBatch batch)>& take) const {
  uint64_t next = files_.empty() ? 0 : std::max(files_.front().first_batch, batch_in_tables_ + 1);
  for (const File& file : files_) {
    const absl::StatusOr<std::string> bytes = ReadAll(file.path);
    if (!bytes.ok()) return bytes.status();
    std::string_view rest = std::string_view(*bytes).substr(kJournalHeader_bytes);
    for (uint64_t batch = file.first_batch; batch <= file.last_batch; ++batch) {
      const std::optional<std::string_view> record = TakeRecord(rest, log_id_, batch);
      if (!record.has_value()) return DamagedError(file.path, "it has changed while it was read");
      if (batch != next) continue;
      ++next;
      if (absl::Status status = take(rocksdb::WriteBatch(std::string(*record))); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace hedgerow::storage
