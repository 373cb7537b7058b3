// SPDX-License-Identifier: Apache-2.0
#include "net/bpf_log.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::net {
namespace {

constexpr size_t kLogTailLines = 12;
constexpr size_t kTextBytes = 2048;

std::vector<std::string>& LogTail() {
  static auto* lines = new std::vector<std::string>();
  return *lines;
}

__attribute__((format(printf, 2, 0))) int KeepLog(libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG) return 0;
  va_list again;
  va_copy(again, arguments);
  const int bytes = vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (bytes <= 0) return 0;
  std::string text(static_cast<size_t>(bytes) + 1, '\0');
  vsnprintf(text.data(), text.size(), format, arguments);
  text.pop_back();
  // The verifier's log comes as one text, with the reason at its end.
  if (text.size() > kTextBytes) text = absl::StrCat("...\n", text.substr(text.size() - kTextBytes));
  std::vector<std::string>& lines = LogTail();
  lines.push_back(std::move(text));
  if (lines.size() > kLogTailLines) lines.erase(lines.begin());
  return 0;
}

}  // namespace

void KeepBpfLog() {
  LogTail().clear();
  libbpf_set_print(KeepLog);
  libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
}

absl::Status BpfLoadError(int error) {
  const std::string tail = absl::StrJoin(LogTail(), "");
  const std::string text = absl::StrCat("the kernel refused the BPF object: ", strerror(error), "\n", tail);
  if (error == ESRCH) return absl::FailedPreconditionError(kNoBtf);  // libbpf's word for a kernel without it
  if (error == EPERM || error == EACCES) return absl::PermissionDeniedError(text);
  if (error == ENOMEM || error == E2BIG) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace hedgerow::net
