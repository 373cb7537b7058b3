// SPDX-License-Identifier: Apache-2.0
//
// hr-ballast.so: makes a program of the lab large before it begins, so that its death takes as long as a large
// process's: the kernel gives back page by page what it held. Preloaded by deploy/lab (NodeSettings.ballast) with
// HEDGEROW_LAB_BALLAST_BYTES; the product knows nothing of it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

__attribute__((constructor)) void TakeBallast() {
  const char* const wanted = getenv("HEDGEROW_LAB_BALLAST_BYTES");
  if (wanted == nullptr) return;
  const size_t bytes = strtoull(wanted, nullptr, 10);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("hr-ballast: mmap");
    _exit(1);
  }
  // Small pages, as a heap has that grew over time: huge ones are given back five hundred at a time.
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < bytes; at += page_bytes) static_cast<volatile char*>(memory)[at] = 1;
}

}  // namespace
