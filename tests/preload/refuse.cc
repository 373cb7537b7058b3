// SPDX-License-Identifier: Apache-2.0
//
// hr-refuse.so: a kernel whose verifier refuses some BPF programs, for a program of the lab. libbpf asks the
// kernel through the C library's syscall(), which this stands before. Preloaded by deploy/lab
// (NodeSettings.refused) with HEDGEROW_LAB_REFUSED_PROGRAMS, names as the kernel has them (15 characters),
// separated by commas.
#include <dlfcn.h>
#include <linux/bpf.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string_view>

namespace {

bool IsRefused(std::string_view name) {
  const char* const named = getenv("HEDGEROW_LAB_REFUSED_PROGRAMS");
  std::string_view names = named == nullptr ? "" : named;
  while (!names.empty() && !name.empty()) {
    const size_t comma = names.find(',');
    if (names.substr(0, comma) == name) return true;
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
  }
  return false;
}

}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  using Syscall = long (*)(long, ...);
  static const auto next = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_bpf && arguments[0] == BPF_PROG_LOAD &&
      IsRefused(reinterpret_cast<const bpf_attr*>(arguments[1])->prog_name)) {
    errno = EACCES;
    return -1;
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
