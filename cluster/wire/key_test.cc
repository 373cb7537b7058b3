// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/key.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <gmock/gmock.h>

namespace hedgerow::wire {
namespace {

constexpr std::string_view kHex = "000102030405060708090a0b0c0d0e0f";

TEST(Key, IsReadFromHexadecimalDigitsOfEitherCase) {
  const auto key = ParseKey("000102030405060708090A0b0C0d0E0f");
  ASSERT_TRUE(key.ok()) << key.status();
  for (size_t i = 0; i < key->bytes.size(); ++i) EXPECT_EQ(key->bytes[i], i);
  EXPECT_EQ(FormatKey(*key), kHex);
}

TEST(Key, IsTwoLittleEndianNumbersForSipHash) {
  const hr_siphash_key key = SipHashKey(*ParseKey(kHex));
  EXPECT_EQ(key.k0, 0x0706050403020100u);
  EXPECT_EQ(key.k1, 0x0f0e0d0c0b0a0908u);
}

TEST(Key, EachRecoveryGenerationHasItsOwn) {
  const Key key = *ParseKey(kHex);
  EXPECT_EQ(DeriveClusterKey(key, 0, 0), key) << "as it was configured: nothing was ever recovered";
  std::vector<Key> keys = {key};
  for (const auto& [epoch, nonce] : {std::pair<uint64_t, uint64_t>(1, 5), {1, 6}, {2, 5}, {uint64_t{1} << 40, 5}}) {
    const Key derived = DeriveClusterKey(key, epoch, nonce);
    EXPECT_EQ(derived, DeriveClusterKey(key, epoch, nonce));
    for (const Key& other : keys) EXPECT_NE(derived, other) << epoch << " " << nonce;
    keys.push_back(derived);
  }
  // On every node of whatever version: what has begun under it must go on.
  EXPECT_EQ(FormatKey(DeriveClusterKey(key, 1, 5)), "61b68ac4e140c8404f15aaafb333315e");
}

TEST(Key, OfAnotherLengthIsRefused) {
  for (size_t size = 0; size <= 64; ++size) {
    EXPECT_EQ(ParseKey(std::string(size, 'a')).ok(), size == 32) << size;
  }
}

TEST(Key, WithAnythingElseInItIsRefused) {
  for (const char wrong : {'g', 'G', ' ', '/', ':', '@', '`', '\0', '\n', '\xff'}) {
    std::string hex(kHex);
    hex[7] = wrong;
    const auto key = ParseKey(hex);
    EXPECT_FALSE(key.ok());
    EXPECT_THAT(key.status().message(), testing::HasSubstr("character 8 "));
  }
}

TEST(Key, IsNeverRepeatedInAnError) {
  EXPECT_THAT(ParseKey("deadbeef").status().message(), testing::Not(testing::HasSubstr("dead")));
  EXPECT_THAT(ParseKey("deadbeefdeadbeefdeadbeefdeadbeeg").status().message(),
              testing::Not(testing::HasSubstr("dead")));
}

TEST(KeyRing, AKeyIsNamedByAnIdThatIsNotItselfAndNever0) {
  const Key key = {.bytes = {1, 2, 3}}, other = {.bytes = {1, 2, 4}};
  const KeyRing ring(key, other);
  EXPECT_NE(KeyId(key), 0u);
  EXPECT_NE(KeyId(key), KeyId(other));
  ASSERT_NE(ring.Find(KeyId(other)), nullptr);
  EXPECT_EQ(ring.Find(KeyId(other))->key, other);
  EXPECT_EQ(ring.Find(0), nullptr);
  EXPECT_EQ(KeyRing(key).other(), nullptr);
}

TEST(KeyRing, ADerivedKeyKeepsTheNameOfTheConfiguredOne) {
  const Key key = {.bytes = {1, 2, 3}}, other = {.bytes = {1, 2, 4}};
  const KeyRing derived = DeriveClusterKeys(KeyRing(key, other), 3, 77);
  EXPECT_EQ(derived.seals().id, KeyId(key));
  EXPECT_EQ(derived.seals().key, DeriveClusterKey(key, 3, 77));
  EXPECT_EQ(derived.Find(KeyId(other))->key, DeriveClusterKey(other, 3, 77));
}

}  // namespace
}  // namespace hedgerow::wire
