// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/announce.h"

#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "bpf/abi/siphash_abi.h"

namespace hedgerow::wire {
namespace {

const Key kKey = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

Announcement Sample() {
  return {.state = AnnouncementState::kResigning,
          .cluster_id = 0x1112131415161718,
          .cluster_epoch = 0x2122232425262728,
          .term = raft::Term(0x3132333435363738),
          .sequence = 0x4142434445464748,
          .leader_address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1},
          .leader_port = 4801,
          .holds_ms = 0x51525354};
}

TEST(Announcement, SurvivesTheJourney) {
  const auto opened = OpenAnnouncement(SealAnnouncement(Sample(), kKey), kKey);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(*opened, Sample());
}

// What a kernel program sees through the struct.
TEST(Announcement, IsTheStructOfTheKernelPrograms) {
  const std::string datagram = SealAnnouncement(Sample(), kKey);
  ASSERT_EQ(datagram.size(), sizeof(hr_announcement));
  hr_announcement fields;
  std::memcpy(&fields, datagram.data(), sizeof(fields));
  EXPECT_EQ(fields.magic, HR_ANNOUNCEMENT_MAGIC);
  EXPECT_EQ(std::memcmp(datagram.data(), "HRA1", 4), 0);
  EXPECT_EQ(fields.version, 1);
  EXPECT_EQ(fields.state, HR_ANNOUNCEMENT_RESIGNING);
  EXPECT_EQ(fields.bytes, 104);
  EXPECT_EQ(fields.cluster_id, 0x1112131415161718u);
  EXPECT_EQ(fields.cluster_epoch, 0x2122232425262728u);
  EXPECT_EQ(fields.term, 0x3132333435363738u);
  EXPECT_EQ(fields.sequence, 0x4142434445464748u);
  EXPECT_EQ(std::memcmp(&fields.leader_address, Sample().leader_address.data(), 16), 0);
  EXPECT_EQ(std::memcmp(&fields.leader_port_be, "\x12\xc1", 2), 0);
  EXPECT_EQ(fields.holds_ms, 0x51525354u);
  const hr_siphash_key key = SipHashKey(kKey);
  EXPECT_EQ(fields.tag, hr_siphash_bounded(&key, &fields, sizeof(fields), sizeof(fields), HR_SIPHASH_TAG_WORD));
  const uint64_t tag = fields.tag;
  fields.tag = 0;
  EXPECT_EQ(tag, hr_siphash(&key, &fields, sizeof(fields)));
}

TEST(Announcement, EveryOtherLengthIsRefused) {
  const std::string datagram = SealAnnouncement(Sample(), kKey);
  for (size_t size = 0; size < datagram.size(); ++size) {
    EXPECT_FALSE(OpenAnnouncement(std::string_view(datagram).substr(0, size), kKey).has_value()) << size;
  }
  EXPECT_FALSE(OpenAnnouncement(datagram + '\0', kKey).has_value());
}

TEST(Announcement, EveryDamagedByteIsRefused) {
  const std::string datagram = SealAnnouncement(Sample(), kKey);
  for (size_t i = 0; i < datagram.size(); ++i) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string damaged = datagram;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      EXPECT_FALSE(OpenAnnouncement(damaged, kKey).has_value()) << "byte " << i << " by " << flip;
    }
  }
}

TEST(Announcement, OfAnotherKeyIsRefused) {
  Key other = kKey;
  other.bytes[15] ^= 0x80;
  EXPECT_FALSE(OpenAnnouncement(SealAnnouncement(Sample(), other), kKey).has_value());
}

TEST(Announcement, WithAnUnknownStateIsRefusedEvenWithTheRightTag) {
  Announcement announcement = Sample();
  for (const int state : {0, 3, 255}) {
    announcement.state = static_cast<AnnouncementState>(state);
    EXPECT_FALSE(OpenAnnouncement(SealAnnouncement(announcement, kKey), kKey).has_value()) << state;
  }
}

TEST(ProxyKey, IsSipHashOfTheHalfsNumberAndTheName) {
  const hr_siphash_key key = SipHashKey(kKey);
  const Key proxy_key = DeriveProxyKey(kKey, "web1");
  EXPECT_EQ(SipHashKey(proxy_key).k0, hr_siphash(&key, "\x01web1", 5));
  EXPECT_EQ(SipHashKey(proxy_key).k1, hr_siphash(&key, "\x02web1", 5));
}

// The number in hexadecimal is a promise to the configurations that hold it: computed once by another
// implementation (OpenSSL's SIPHASH).
TEST(ProxyKey, StaysWhatItIs) {
  EXPECT_EQ(FormatKey(DeriveProxyKey(kKey, "web1")), "00239ec723ae0821a520bf3dd5b607d6");
}

TEST(ProxyKey, IsAnotherForEveryNameAndEveryAnnounceKey) {
  std::set<std::string> keys;
  for (const std::string_view name : {"", "a", "b", "ab", "web1", "web2", "Web1"}) {
    keys.insert(FormatKey(DeriveProxyKey(kKey, name)));
    keys.insert(FormatKey(DeriveProxyKey({}, name)));
  }
  EXPECT_EQ(keys.size(), 14u);
}

}  // namespace
}  // namespace hedgerow::wire
