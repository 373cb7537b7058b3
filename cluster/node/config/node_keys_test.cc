// SPDX-License-Identifier: Apache-2.0
//
// A change of the cluster key cuts no member off: each step is refused until every member can follow, and says which
// one cannot.
#include "cluster/node/config/node_keys.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/wire/announce.h"

namespace hedgerow::node {
namespace {

using ::testing::HasSubstr;

wire::Key KeyOf(uint8_t byte) {
  wire::Key key;
  key.bytes.fill(byte);
  return key;
}

const wire::Key kOld = KeyOf(1), kNew = KeyOf(2);

MemberKeys Member(uint64_t id, const wire::Key& sealing, const wire::Key* other = nullptr) {
  return {.id = raft::NodeId(id),
          .sealing = wire::KeyId(sealing),
          .other = other == nullptr ? 0 : wire::KeyId(*other),
          .fresh = true};
}

std::string WhyNot(const wire::KeyRing& now, const wire::KeyRing& next, const std::vector<MemberKeys>& members) {
  const absl::Status status = MayChangeClusterKeys(now, next, members);
  return status.ok() ? "" : std::string(status.message());
}

TEST(NodeKeys, AKeyMayBeAddedWhateverTheMembersHave) {
  EXPECT_EQ(WhyNot(kOld, wire::KeyRing(kOld, kNew), {Member(2, kOld), {.id = raft::NodeId(3)}}), "");
}

TEST(NodeKeys, ANodeSealsWithAKeyThatAllMembersOpen) {
  const wire::KeyRing now(kOld, kNew), next(kNew, kOld);
  EXPECT_EQ(WhyNot(now, next, {Member(2, kOld, &kNew), Member(3, kNew, &kOld)}), "");
  EXPECT_THAT(WhyNot(now, next, {Member(2, kOld, &kNew), Member(3, kOld)}),
              HasSubstr("member 3 does not have the key " + wire::FormatKeyId(wire::KeyId(kNew))));
  MemberKeys silent = Member(3, kOld, &kNew);
  silent.fresh = false;
  EXPECT_THAT(WhyNot(now, next, {silent}), HasSubstr("member 3 has not told"));
}

TEST(NodeKeys, AKeyGoesWhenNoMemberSealsWithIt) {
  const wire::KeyRing now(kNew, kOld), next(kNew);
  EXPECT_EQ(WhyNot(now, next, {Member(2, kNew, &kOld), Member(3, kNew)}), "");
  EXPECT_THAT(WhyNot(now, next, {Member(2, kOld, &kNew)}),
              HasSubstr("member 2 still seals with the key " + wire::FormatKeyId(wire::KeyId(kOld))));
  EXPECT_THAT(WhyNot(now, next, {{.id = raft::NodeId(2)}}), HasSubstr("member 2 has not told"));
}

TEST(NodeKeys, AnExchangeInOneStepIsRefused) {
  EXPECT_NE(WhyNot(kOld, kNew, {Member(2, kOld)}), "");
  EXPECT_NE(WhyNot(kOld, kNew, {Member(2, kOld, &kNew)}), "") << "it still seals with the former one";
  EXPECT_EQ(WhyNot(kOld, kNew, {}), "") << "nobody is cut off";
}

TEST(NodeKeys, AClientsKeyIsNoOthers) {
  const NodeKeys nodes{.cluster = wire::KeyRing(kOld, kNew), .announce = KeyOf(3)};
  EXPECT_EQ(SharesKeyWith(KeyOf(4), nodes, {"web1"}, {KeyOf(5)}), "");
  EXPECT_EQ(SharesKeyWith(wire::KeyRing(KeyOf(4), kNew), nodes, {}, {}), "the cluster");
  EXPECT_EQ(SharesKeyWith(KeyOf(3), nodes, {}, {}), "the announce key");
  EXPECT_EQ(SharesKeyWith(KeyOf(4), nodes, {}, {KeyOf(5), wire::KeyRing(KeyOf(6), KeyOf(4))}), "another client");
  EXPECT_EQ(SharesKeyWith(KeyOf(3), {.cluster = kOld}, {}, {}), "");
}

TEST(NodeKeys, AClientsKeyIsNoProxys) {
  const NodeKeys nodes{.cluster = kOld, .announce = wire::KeyRing(KeyOf(3), KeyOf(4))};
  for (const uint8_t announce : {3, 4}) {
    EXPECT_EQ(SharesKeyWith(wire::DeriveProxyKey(KeyOf(announce), "web2"), nodes, {"web1", "web2"}, {}), "a proxy")
        << int{announce};
    EXPECT_EQ(SharesKeyWith(wire::DeriveProxyKey(KeyOf(announce), "web3"), nodes, {"web1", "web2"}, {}), "");
  }
}

TEST(NodeKeys, WhatProxiesKnowIsNoKeyOfTheNodes) {
  EXPECT_EQ(WhyNotApart({.cluster = wire::KeyRing(kOld, kNew), .announce = KeyOf(3)}), "");
  EXPECT_NE(WhyNotApart({.cluster = wire::KeyRing(kOld, kNew), .announce = kNew}), "");
  EXPECT_NE(WhyNotApart({.cluster = kOld, .announce = wire::KeyRing(KeyOf(3), kOld)}), "");
}

}  // namespace
}  // namespace hedgerow::node
