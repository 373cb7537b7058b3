// SPDX-License-Identifier: Apache-2.0
#include "net/bpf_log.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::net {
namespace {

constexpr size_t kLogTailLines = 12;

std::vector<std::string>& LogTail() {
  static auto* lines = new std::vector<std::string>();
  return *lines;
}

__attribute__((format(printf, 2, 0))) int KeepLog(libbpf_print_level level, const char* format,
                                                  va_list arguments) {
  if (level == LIBBPF_DEBUG) return 0;
  char buffer[2048];
  vsnprintf(buffer, sizeof(buffer), format, arguments);
  std::vector<std::string>& lines = LogTail();
  lines.emplace_back(buffer);
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
  if (error == EPERM || error == EACCES) return absl::PermissionDeniedError(text);
  if (error == ENOMEM || error == E2BIG) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace hedgerow::net
