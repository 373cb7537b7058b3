// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/rocks_messages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hedgerow::storage {
namespace {

constexpr size_t kLineMax_bytes = 1024;

}  // namespace

RocksMessages::RocksMessages(const std::string& folder)
    : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL), path_(folder + "/messages") {
  absl::MutexLock lock(&mutex_);
  Open();
}

void RocksMessages::Open() {
  file_ = Descriptor(open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  struct stat file {};
  file_bytes_ = file_.ok() && fstat(file_.get(), &file) == 0 ? static_cast<size_t>(file.st_size) : 0;
}

void RocksMessages::Logv(const char* format, va_list arguments) {
  std::array<char, kLineMax_bytes> text{};
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  if (length < 0) return;
  std::string line =
      absl::StrCat(absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()), " ", text.data());
  if (line.back() != '\n') line.push_back('\n');

  absl::MutexLock lock(&mutex_);
  if (file_bytes_ + line.size() > kFileMax_bytes) {
    (void)rename(path_.c_str(), (path_ + ".old").c_str());
    Open();
  }
  const ssize_t written = write(file_.get(), line.data(), line.size());
  if (written > 0) file_bytes_ += static_cast<size_t>(written);
}

size_t RocksMessages::GetLogFileSize() const {
  absl::MutexLock lock(&mutex_);
  return file_bytes_;
}

}  // namespace hedgerow::storage
