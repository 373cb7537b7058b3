// SPDX-License-Identifier: Apache-2.0
//
// hr-short_writes.so: a kernel that takes half of what is written, as it may at a signal, a full pipe or a disk's last
// block, for a program of the lab (tests/faults).
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

size_t Half(size_t bytes) { return bytes - bytes / 2; }

}  // namespace

extern "C" ssize_t write(int fd, const void* data, size_t bytes) {
  return Next<ssize_t (*)(int, const void*, size_t)>("write")(fd, data, Half(bytes));
}

extern "C" ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return Next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64")(fd, data, Half(bytes), offset);
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return pwrite64(fd, data, bytes, offset);
}

extern "C" ssize_t writev(int fd, const iovec* parts, int) { return write(fd, parts[0].iov_base, parts[0].iov_len); }
