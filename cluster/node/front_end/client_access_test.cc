// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/client_access.h"

#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

using kv::OperationKind;
using wire::HkvDenial;
using wire::HkvKind;

constexpr wire::Key kWeb = {.bytes = {1}}, kWebNext = {.bytes = {2}}, kOps = {.bytes = {3}};
constexpr uint64_t kNow_ms = 1'700'000'000'000;

class ClientAccessTest : public testing::Test {
 protected:
  static std::vector<NamedClient> Clients() {
    return {{.name = "web", .keys = {kWeb, kWebNext}, .read = {"app/", "news/"}, .write = {"app/web/"}},
            {.name = "ops", .keys = {kOps}, .write = {""}}};
  }
  static wire::HkvRequest Get(std::string key) { return {.kind = HkvKind::kGet, .seq = 1, .key = std::move(key)}; }
  static wire::HkvRequest Write(std::vector<kv::Operation> operations) {
    return {.kind = HkvKind::kWrite, .seq = 1, .operations = std::move(operations)};
  }
  static std::string Sealed(const wire::HkvRequest& request, std::string_view client, const wire::Key& key,
                            uint64_t sent_ms = kNow_ms) {
    return wire::SealHkvRequest(wire::Encode(request), client, sent_ms, key);
  }
  // "" if it may, else why not and for which key.
  std::string Denied(const wire::HkvRequest& request, std::string_view client, const wire::Key& key,
                     uint64_t sent_ms = kNow_ms) const {
    const ClientAccess::Verdict verdict = access_.Judge(Sealed(request, client, key, sent_ms), request, kNow_ms);
    return verdict.denied ? std::string(Name(verdict.why)) + " " + verdict.key : "";
  }

  const ClientAccess access_{false, Clients()};
};

TEST_F(ClientAccessTest, RightsAreByPrefixOfTheKey) {
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb), "");
  EXPECT_EQ(Denied(Get("app/"), "web", kWeb), "");
  EXPECT_EQ(Denied(Get("news/1"), "web", kWeb), "");
  EXPECT_EQ(Denied(Get("app"), "web", kWeb), "read app");
  EXPECT_EQ(Denied(Get("ops/app/"), "web", kWeb), "read ops/app/");
  const kv::Operation put{.kind = OperationKind::kPut, .key = "app/web/1"},
      foreign{.kind = OperationKind::kPut, .key = "app/1"};
  EXPECT_EQ(Denied(Write({put}), "web", kWeb), "");
  EXPECT_EQ(Denied(Write({put, foreign}), "web", kWeb), "write app/1") << "all or none";
  EXPECT_EQ(Denied(Write({{.kind = OperationKind::kDelete, .key = "news/1"}}), "web", kWeb), "write news/1");
  EXPECT_EQ(Denied(Write({foreign}), "ops", kOps), "") << "the empty prefix is all keys";
  EXPECT_EQ(Denied(Get("app/1"), "ops", kOps), "read app/1") << "the right to write is none to read";
}

TEST_F(ClientAccessTest, WhatTellsAValueNeedsTheRightToReadIt) {
  EXPECT_EQ(Denied(Write({{.kind = OperationKind::kIncrement, .key = "app/web/n"}}), "web", kWeb), "");
  EXPECT_EQ(Denied(Write({{.kind = OperationKind::kIncrement, .key = "n"}}), "ops", kOps), "read n");
  EXPECT_EQ(Denied(Write({{.kind = OperationKind::kCompareAndSet, .key = "n"}}), "ops", kOps), "read n");
  EXPECT_EQ(Denied(Write({{.kind = OperationKind::kPut, .key = "n"}, {.kind = OperationKind::kDelete, .key = "n"}}),
                   "ops", kOps),
            "");
}

// It would take places of the window and of sessions, and answers' memory, for which it can have no use.
TEST_F(ClientAccessTest, AClientThatMayWriteNoKeyMakesNothingThatTheStoreRemembers) {
  const ClientAccess access(false, {{.name = "reader", .keys = {kWeb}, .read = {""}}});
  for (const wire::HkvRequest& request : {wire::HkvRequest{.kind = HkvKind::kOpen, .seq = 5},
                                          wire::HkvRequest{.kind = HkvKind::kCancel, .seq = 5}, Write({})}) {
    const ClientAccess::Verdict verdict = access.Judge(Sealed(request, "reader", kWeb), request, kNow_ms);
    EXPECT_TRUE(verdict.denied);
    EXPECT_EQ(verdict.why, HkvDenial::kWrite);
  }
  EXPECT_FALSE(access.Judge(Sealed(Get("x"), "reader", kWeb), Get("x"), kNow_ms).denied);
}

TEST_F(ClientAccessTest, WhatConcernsNoKeyIsEveryClientsThatMayWrite) {
  EXPECT_EQ(Denied({.kind = HkvKind::kOpen, .seq = 5}, "web", kWeb), "");
  EXPECT_EQ(Denied({.kind = HkvKind::kCancel, .seq = 5}, "web", kWeb), "");
  EXPECT_EQ(Denied(Write({}), "web", kWeb), "");
  EXPECT_EQ(Denied({.kind = HkvKind::kOpen, .seq = 5}, "web", kOps), "unproven ");
}

TEST_F(ClientAccessTest, AClientProvesItselfByItsNameAndOneOfItsKeys) {
  const wire::HkvRequest get = Get("app/x");
  const auto by = [&](const wire::Key& key) { return access_.Judge(Sealed(get, "web", key), get, kNow_ms).proved_by; };
  EXPECT_NE(by(kWeb), 0);
  EXPECT_NE(by(kWebNext), 0);
  EXPECT_NE(by(kWeb), by(kWebNext));
  EXPECT_EQ(*access_.Find(by(kWebNext)), kWebNext) << "the answer's tag is made with the same";
  EXPECT_EQ(access_.ClientOf(by(kWeb)), access_.ClientOf(by(kWebNext))) << "one client";
  EXPECT_NE(access_.ClientOf(by(kWeb)), 0u);
  EXPECT_EQ(access_.ClientOf(0), 0u);
  EXPECT_EQ(by(kOps), 0);
  EXPECT_EQ(Denied(get, "web", kOps), "unproven ");
  EXPECT_EQ(Denied(get, "nobody", kWeb), "unproven ");
  std::string changed = Sealed(get, "web", kWeb);
  changed[20] ^= 1;
  EXPECT_TRUE(access_.Judge(changed, get, kNow_ms).denied);
}

TEST_F(ClientAccessTest, ARequestOfAnotherTimeIsARecordedOne) {
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb, kNow_ms - wire::kHkvClockTolerance_ms), "");
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb, kNow_ms + wire::kHkvClockTolerance_ms), "");
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb, kNow_ms - wire::kHkvClockTolerance_ms - 1), "clock ");
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb, kNow_ms + wire::kHkvClockTolerance_ms + 1), "clock ");
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb, 0), "clock ");
  EXPECT_EQ(Denied(Get("app/x"), "web", kWeb, UINT64_MAX), "clock ");
}

TEST_F(ClientAccessTest, AnonymousClientsAreServedWhereTheConfigurationSaysSo) {
  const wire::HkvRequest get = Get("anything");
  const std::string datagram = wire::Encode(get);
  const ClientAccess::Verdict refused = access_.Judge(datagram, get, kNow_ms);
  EXPECT_TRUE(refused.denied);
  EXPECT_EQ(refused.why, HkvDenial::kAnonymous);
  EXPECT_EQ(refused.proved_by, 0);
  const ClientAccess open(true, Clients());
  EXPECT_FALSE(open.Judge(datagram, get, kNow_ms).denied);
  EXPECT_TRUE(open.Judge(Sealed(get, "web", kOps), get, kNow_ms).denied) << "a wrong tag is no anonymous request";
}

TEST_F(ClientAccessTest, KeysOfAReloadHaveOtherNumbers) {
  const wire::HkvRequest get = Get("app/x");
  const auto number = [&](const ClientAccess& access) {
    return access.Judge(Sealed(get, "web", kWeb), get, kNow_ms).proved_by;
  };
  const ClientAccess second(false, Clients(), access_.next_number());
  const ClientAccess third(false, Clients(), second.next_number());
  EXPECT_EQ(second.Find(number(access_)), nullptr);
  EXPECT_EQ(access_.Find(number(second)), nullptr);
  EXPECT_EQ(second.Find(number(third)), nullptr);
  EXPECT_EQ(*second.Find(number(second)), kWeb);
  EXPECT_EQ(access_.Find(0), nullptr);
}

}  // namespace
}  // namespace hedgerow::node
