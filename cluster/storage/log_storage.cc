// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_storage.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cluster/raft/check.h"
#include "cluster/raft/log.h"
#include "cluster/storage/restore_log.h"
#include "cluster/storage/errors.h"
#include "operate/clock.h"

namespace hedgerow::storage {
namespace {

// A term or a vote weighs something, too.
constexpr uint64_t kPersist_bytes = 64;

uint64_t Bytes(const raft::Persist& persist) {
  uint64_t bytes = kPersist_bytes;
  for (const raft::Entry& entry : persist.entries) bytes += raft::CostBytes(entry);
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogStorage>> LogStorage::Open(const StorageOptions& options,
                                                             const StoredIdentity& expected, const LoadSnapshot& load) {
  if (absl::Status status = CheckFinished(options.path); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<DurableLog>> log = DurableLog::Open(options, expected);
  if (!log.ok()) return log.status();
  absl::StatusOr<SnapshotFolder> snapshots = SnapshotFolder::Open(options.path);
  if (!snapshots.ok()) return snapshots.status();
  net::UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return FromErrno(options.path, "make an eventfd for", errno);
  std::unique_ptr<LogStorage> storage(
      new LogStorage(options, *std::move(log), *std::move(snapshots), std::move(event)));
  absl::StatusOr<std::string> trouble =
      ChooseSnapshot(storage->snapshots_, options.path, expected, load, storage->restored_, options.progress);
  if (!trouble.ok()) return trouble.status();
  storage->snapshot_trouble_ = *std::move(trouble);
  storage->compactor_.Clean(storage->restored_.start.index, storage->restored_.snapshot.last.index);
  if (options.progress != nullptr) options.progress->Begin(LoadProgress::Stage::kOpened);
  return storage;
}

LogStorage::LogStorage(const StorageOptions& options, std::unique_ptr<DurableLog> log, SnapshotFolder snapshots,
                       net::UniqueFd event)
    : options_(options),
      event_(std::move(event)),
      log_(std::move(log)),
      snapshots_(std::move(snapshots)),
      compactor_(*log_, snapshots_),
      began_with_(log_->began_with()),
      restored_(log_->TakeRestored()),
      thread_([this] { Run(); }) {}

LogStorage::~LogStorage() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  thread_.join();
}

raft::RestoredState LogStorage::TakeRestored() { return std::exchange(restored_, {}); }

void LogStorage::Write(raft::Persist persist, bool here) {
  HEDGEROW_CHECK(persist.sequence > asked_sequence_);
  asked_sequence_ = persist.sequence;
  {
    absl::MutexLock lock(&mutex_);
    ++statistics_.queue_length;
    statistics_.queue_bytes += Bytes(persist);
    if (statistics_.queue_bytes > options_.queue_max_bytes) ++statistics_.queue_over_bound;
    if (failed_) return;  // it is never fetched
    if (options_.sync || committing_ || !queue_.empty()) {
      left_here_ = here && quick_syncs_.hold() && !committing_ && (left_here_ || queue_.empty());
      queue_.push_back(std::move(persist));
      return;
    }
    committing_ = true;
  }
  std::vector<raft::Persist> batch;
  batch.push_back(std::move(persist));
  CommitNow(std::move(batch));
}

bool LogStorage::CommitHere() {
  std::vector<raft::Persist> batch;
  {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(left_here_, false)) return false;
    committing_ = true;
    ++statistics_.batches_here;
    here_since_ns_ = operate::Monotonic_ns();
    batch = NextBatch();
  }
  CommitNow(std::move(batch));
  absl::MutexLock lock(&mutex_);
  here_since_ns_ = 0;
  return true;
}

uint64_t LogStorage::here_for_ns() const {
  absl::MutexLock lock(&mutex_);
  return here_since_ns_ == 0 ? 0 : operate::Monotonic_ns() - here_since_ns_;
}

void LogStorage::CommitNow(std::vector<raft::Persist> batch) {
  const uint64_t start_ns = operate::Monotonic_ns();
  for (const raft::Persist& persist : batch) log_->Gather(persist);
  const absl::Status status = log_->Commit(/*may_wait=*/false);
  absl::MutexLock lock(&mutex_);
  if (status.ok()) {
    Account(batch, operate::Monotonic_ns() - start_ns);
    committing_ = false;
  } else {
    left_over_ = std::move(batch);
  }
}

void LogStorage::ReadEvent() {
  eventfd_t ignored = 0;
  (void)eventfd_read(event_.get(), &ignored);
}

uint64_t LogStorage::TakeDurable() {
  absl::MutexLock lock(&mutex_);
  return durable_sequence_;
}

absl::Status LogStorage::health() const {
  absl::MutexLock lock(&mutex_);
  return health_;
}

StorageStatistics LogStorage::statistics() const {
  absl::MutexLock lock(&mutex_);
  return statistics_;
}

bool LogStorage::SomethingToDo() const {
  return stopping_ || !left_over_.empty() || (!queue_.empty() && !committing_ && !left_here_);
}

void LogStorage::Run() {
  while (true) {
    std::vector<raft::Persist> batch;
    bool gathered = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &LogStorage::SomethingToDo));
      gathered = !left_over_.empty();
      if (!gathered && queue_.empty()) return;
      committing_ = true;
      batch = gathered ? std::exchange(left_over_, {}) : NextBatch();
    }
    if (!gathered) {
      for (const raft::Persist& persist : batch) log_->Gather(persist);
    }
    uint64_t duration_ns = 0;
    const absl::Status status = CommitPatiently(duration_ns);
    {
      absl::MutexLock lock(&mutex_);
      health_ = status;
      if (status.ok()) {
        Account(batch, duration_ns);
        committing_ = false;
      } else {
        failed_ = true;
        queue_.clear();
      }
    }
    Signal();
    if (!status.ok()) return;
  }
}

std::vector<raft::Persist> LogStorage::NextBatch() {
  std::vector<raft::Persist> batch;
  uint64_t bytes = 0;
  while (!queue_.empty()) {
    bytes += Bytes(queue_.front());
    if (!batch.empty() && bytes > options_.batch_max_bytes) break;
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return batch;
}

absl::Status LogStorage::CommitPatiently(uint64_t& duration_ns) {
  while (true) {
    const uint64_t start_ns = operate::Monotonic_ns();
    const absl::Status status = log_->Commit();
    duration_ns = operate::Monotonic_ns() - start_ns;
    absl::MutexLock lock(&mutex_);
    if (!absl::IsResourceExhausted(status)) return status;
    ++statistics_.full_disk_retries;
    if (health_.ok()) Signal();
    health_ = status;
    if (stopped_.Await(mutex_, options_.retry_interval,
                       [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; }))
      return absl::AbortedError("the node stopped while the disk was full");
  }
}

void LogStorage::Account(const std::vector<raft::Persist>& batch, uint64_t duration_ns) {
  StorageStatistics& statistics = statistics_;
  for (const raft::Persist& persist : batch) {
    const uint64_t bytes = Bytes(persist);
    ++statistics.writes;
    statistics.entries += persist.entries.size();
    statistics.bytes += bytes;
    statistics.hard_states += persist.hard_state.has_value();
    statistics.truncations += persist.truncate_from.has_value();
    if (persist.new_start.has_value()) {
      ++statistics.new_starts;
      compactor_.Clean(persist.new_start->after.index, persist.new_start->snapshot.index);
    }
    --statistics.queue_length;
    statistics.queue_bytes -= bytes;
  }
  ++statistics.batches;
  statistics.largest_batch = std::max<uint64_t>(statistics.largest_batch, batch.size());

  quick_syncs_.Took(duration_ns);
  statistics.syncs.Record(duration_ns);
  durable_sequence_ = batch.back().sequence;
  if (log_->wants_spare()) compactor_.PrepareSpare();
}

// Last, since the owner may take the processor from this thread at once: what it looks for must be there.
void LogStorage::Signal() {
  (void)eventfd_write(event_.get(), 1);  // it fails only at its upper bound, and is readable then
}

}  // namespace hedgerow::storage
