// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/snapshot_writer.h"

#include <utility>

namespace hedgerow::storage {

SnapshotWriter::SnapshotWriter(SnapshotFolder folder, SnapshotHeader header, std::function<void()> ended)
    : folder_(std::move(folder)), header_(std::move(header)), ended_(std::move(ended)), thread_([this] { Run(); }) {}

SnapshotWriter::~SnapshotWriter() {
  Abandon();
  thread_.join();
}

void SnapshotWriter::Abandon() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  queue_.clear();  // its thread may wait for the disk for long
  backlog_bytes_ = 0;
}

void SnapshotWriter::Append(std::string chunk) {
  absl::MutexLock lock(&mutex_);
  if (result_.has_value() || stopping_) return;
  backlog_bytes_ += chunk.size();
  queue_.push_back(std::move(chunk));
}

void SnapshotWriter::Finish() {
  absl::MutexLock lock(&mutex_);
  finishing_ = true;
}

uint64_t SnapshotWriter::backlog_bytes() const {
  absl::MutexLock lock(&mutex_);
  return backlog_bytes_;
}

uint64_t SnapshotWriter::size_bytes() const {
  absl::MutexLock lock(&mutex_);
  return size_bytes_;
}

std::optional<absl::Status> SnapshotWriter::result() const {
  absl::MutexLock lock(&mutex_);
  return result_;
}

bool SnapshotWriter::Next(std::string& chunk) {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &SnapshotWriter::SomethingToDo));
  if (stopping_ || queue_.empty()) return false;
  chunk = std::move(queue_.front());
  queue_.pop_front();
  backlog_bytes_ -= chunk.size();
  return true;
}

absl::Status SnapshotWriter::Write() {
  absl::StatusOr<SnapshotFileWriter> file = folder_.Begin(header_, "taking");
  if (!file.ok()) return file.status();
  absl::Status status;
  std::string chunk;
  while (status.ok() && Next(chunk)) status = file->Append(chunk);
  if (status.ok()) {
    absl::MutexLock lock(&mutex_);
    if (!finishing_ || stopping_) status = absl::CancelledError("it was abandoned");
  }
  if (status.ok()) status = file->Finish();
  if (status.ok()) status = folder_.Publish(file->path(), header_.snapshot.last);
  if (!status.ok()) folder_.Discard(*file);
  absl::MutexLock lock(&mutex_);
  size_bytes_ = file->size_bytes();
  return status;
}

void SnapshotWriter::Run() {
  absl::Status status = Write();
  {
    absl::MutexLock lock(&mutex_);
    result_ = std::move(status);
    queue_.clear();
  }
  ended_();
}

}  // namespace hedgerow::storage
