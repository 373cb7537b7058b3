// SPDX-License-Identifier: Apache-2.0
//
// bpf/abi/siphash_abi.h against the paper's example and the table of the authors' reference implementation
// (vectors_sip64), and its forms against each other.
#include "bpf/abi/siphash_abi.h"

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bpf/abi/announce_abi.h"

namespace hedgerow::wire {
namespace {

// Key 00 01 .. 0f, as everywhere in the paper and the table.
constexpr hr_siphash_key kPaperKey = {.k0 = 0x0706050403020100, .k1 = 0x0f0e0d0c0b0a0908};

std::string Counting(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}

TEST(SipHash, IsThePapersExample) {
  // Appendix A: the message 00 01 .. 0e.
  EXPECT_EQ(hr_siphash(&kPaperKey, Counting(15).data(), 15), 0xa129ca6149be45e5u);
}

TEST(SipHash, IsTheAuthorsTable) {
  const std::vector<std::pair<size_t, std::array<uint8_t, 8>>> table = {
      {0, {0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72}},  {1, {0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74}},
      {2, {0x5a, 0x4f, 0xa9, 0xd9, 0x09, 0x80, 0x6c, 0x0d}},  {3, {0x2d, 0x7e, 0xfb, 0xd7, 0x96, 0x66, 0x67, 0x85}},
      {4, {0xb7, 0x87, 0x71, 0x27, 0xe0, 0x94, 0x27, 0xcf}},  {5, {0x8d, 0xa6, 0x99, 0xcd, 0x64, 0x55, 0x76, 0x18}},
      {6, {0xce, 0xe3, 0xfe, 0x58, 0x6e, 0x46, 0xc9, 0xcb}},  {7, {0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab}},
      {8, {0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93}},  {9, {0xb0, 0xe4, 0xa9, 0x0b, 0xdf, 0x82, 0x00, 0x9e}},
      {10, {0xf3, 0xb9, 0xdd, 0x94, 0xc5, 0xbb, 0x5d, 0x7a}}, {11, {0xa7, 0xad, 0x6b, 0x22, 0x46, 0x2f, 0xb3, 0xf4}},
      {12, {0xfb, 0xe5, 0x0e, 0x86, 0xbc, 0x8f, 0x1e, 0x75}}, {13, {0x90, 0x3d, 0x84, 0xc0, 0x27, 0x56, 0xea, 0x14}},
      {14, {0xee, 0xf2, 0x7a, 0x8e, 0x90, 0xca, 0x23, 0xf7}}, {15, {0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1}},
      {16, {0xdb, 0x9b, 0xc2, 0x57, 0x7f, 0xcc, 0x2a, 0x3f}}, {63, {0x72, 0x45, 0x06, 0xeb, 0x4c, 0x32, 0x8a, 0x95}},
  };
  for (const auto& [size, expected] : table) {
    const uint64_t hash = hr_siphash(&kPaperKey, Counting(size).data(), size);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(hash >> (8 * i) & 0xff, expected[i]) << size << " bytes, byte " << i;
  }
}

TEST(SipHash, NeedsNoAlignment) {
  const std::string bytes = "x" + Counting(15);
  EXPECT_EQ(hr_siphash(&kPaperKey, bytes.data() + 1, 15), 0xa129ca6149be45e5u);
}

TEST(SipHash, TheKernelsFormIsTheSame) {
  std::mt19937_64 random(1);
  for (uint64_t size = 0; size <= HR_ANNOUNCEMENT_BYTES; ++size) {
    // What follows the message in its buffer does not count.
    std::array<uint64_t, HR_ANNOUNCEMENT_BYTES / 8> words;
    for (uint64_t& word : words) word = random();
    const hr_siphash_key key = {.k0 = random(), .k1 = random()};
    EXPECT_EQ(hr_siphash_bounded(&key, words.data(), size, sizeof(words), HR_SIPHASH_NO_TAG_WORD),
              hr_siphash(&key, words.data(), size))
        << size;
    if (size >= 16) {
      EXPECT_EQ(hr_siphash_bounded(&key, words.data(), size, sizeof(words), HR_SIPHASH_TAG_WORD),
                hr_siphash_sealed(&key, words.data(), size))
          << size;
    }
  }
}

TEST(SipHash, ATagCountsAsZeroWhereverItStands) {
  std::mt19937_64 random(2);
  for (size_t size = 16; size <= 200; ++size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    std::string untagged = bytes;
    std::memset(untagged.data() + 8, 0, 8);
    EXPECT_EQ(hr_siphash_sealed(&kPaperKey, bytes.data(), size), hr_siphash(&kPaperKey, untagged.data(), size));
  }
}

TEST(SipHash, LongerThanTheBoundIsCutToIt) {
  const std::string bytes = Counting(16);
  std::array<uint64_t, 2> words;
  std::memcpy(words.data(), bytes.data(), sizeof(words));
  EXPECT_EQ(hr_siphash_bounded(&kPaperKey, words.data(), 99, 16, HR_SIPHASH_NO_TAG_WORD),
            hr_siphash(&kPaperKey, bytes.data(), 16));
}

}  // namespace
}  // namespace hedgerow::wire
