// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for announcements: any bytes are refused or opened, and what is opened seals to the same
// bytes. A fuzzer cannot make a tag, so every input is tried a second time with the right one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bpf/abi/siphash_abi.h"
#include "cluster/wire/announce.h"

namespace {

const hedgerow::wire::Key kKey = {.bytes = {1, 2, 3}};

void Check(std::string_view bytes) {
  const auto announcement = hedgerow::wire::OpenAnnouncement(bytes, kKey);
  if (announcement.has_value() && hedgerow::wire::SealAnnouncement(*announcement, kKey) != bytes) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Check(bytes);
  if (size < 16) return 0;
  const hr_siphash_key key = hedgerow::wire::SipHashKey(kKey);
  const uint64_t tag = hr_siphash_sealed(&key, bytes.data(), bytes.size());
  for (size_t i = 0; i < 8; ++i) bytes[8 + i] = static_cast<char>(tag >> (8 * i));
  Check(bytes);
  return 0;
}
