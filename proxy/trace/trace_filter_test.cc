// SPDX-License-Identifier: Apache-2.0
//
// What is asked for in names and text becomes what the kernel compares, or an error that says what was wrong.

#include "proxy/trace/trace_filter.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/config/load.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;

v1::Config Config() {
  return *config::LoadText(R"(
instance: test
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
  - name: echo
    vip: fd99::1
    port: 7
    profile: raw
    raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4}
    backends: [{name: b, address: "fd77::b", port: 7}, {name: c, address: "fd77::c", port: 7}]
)",
                           "test.yaml");
}

hr_trace_filter Filter(const v1::TraceRequest& request) {
  const auto filter = MakeTraceFilter(Config(), request);
  EXPECT_TRUE(filter.ok()) << filter.status();
  return filter.ok() ? *filter : hr_trace_filter{};
}

absl::Status ErrorOf(const v1::TraceRequest& request) { return MakeTraceFilter(Config(), request).status(); }

TEST(TraceFilter, NothingAskedForIsEverything) {
  const hr_trace_filter filter = Filter({});
  EXPECT_EQ(filter.backends[0], 0b11);
  EXPECT_EQ(filter.backends[1], 0b11);
  EXPECT_EQ(filter.backends[2], 0) << "there is no such service";
  EXPECT_EQ(filter.client_mask.halves[0] | filter.client_mask.halves[1], 0u);
  EXPECT_EQ(filter.key_mask[0] | filter.key_mask[1], 0u);
  EXPECT_EQ(filter.client_port_be, 0);
  EXPECT_EQ(filter.slower_ns, 0u);
  EXPECT_EQ(filter.only_hedged, 0);
  EXPECT_EQ(filter.rate, kDefaultTraceRate) << "never unbounded";
}

TEST(TraceFilter, AServiceAndABackendNarrowTheMasks) {
  v1::TraceRequest request;
  request.set_backend("b");
  EXPECT_EQ(Filter(request).backends[0], 0b10) << "every service that has one of that name";
  EXPECT_EQ(Filter(request).backends[1], 0b01);
  request.set_service("dns");
  EXPECT_EQ(Filter(request).backends[1], 0);
}

TEST(TraceFilter, AnIpv4PrefixIsComparedBehindTheMapping) {
  v1::TraceRequest request;
  request.set_client("10.77.5.9/16");
  const hr_trace_filter filter = Filter(request);
  const uint8_t client[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 0};
  EXPECT_EQ(memcmp(filter.client.bytes, client, 16), 0);
  EXPECT_EQ(filter.client_mask.bytes[13], 0xff);
  EXPECT_EQ(filter.client_mask.bytes[14], 0);
  EXPECT_EQ(filter.client_mask.bytes[0], 0xff) << "and nothing of IPv6 looks like it";
}

TEST(TraceFilter, PrefixesOfOddLengthAndWholeAddresses) {
  v1::TraceRequest request;
  request.set_client("fd77:8000::/17");
  EXPECT_EQ(Filter(request).client_mask.bytes[2], 0x80);
  EXPECT_EQ(Filter(request).client_mask.bytes[3], 0);
  request.set_client("fd77::1");
  EXPECT_EQ(Filter(request).client_mask.bytes[15], 0xff);
  request.set_client("10.77.0.1/0");
  EXPECT_EQ(Filter(request).client_mask.bytes[11], 0xff) << "any IPv4 client";
  EXPECT_EQ(Filter(request).client_mask.bytes[12], 0);
}

TEST(TraceFilter, KeyBytesPortAndTheRest) {
  v1::TraceRequest request;
  request.set_key("2A01ff");
  request.set_client_port(53);
  request.set_hedged(true);
  request.set_slower_than_ns(5'000'000);
  request.set_rate(7);
  const hr_trace_filter filter = Filter(request);
  const auto* key = reinterpret_cast<const uint8_t*>(filter.key);
  const auto* mask = reinterpret_cast<const uint8_t*>(filter.key_mask);
  EXPECT_THAT(std::vector<int>(key, key + 4), testing::ElementsAre(0x2a, 0x01, 0xff, 0));
  EXPECT_THAT(std::vector<int>(mask, mask + 4), testing::ElementsAre(0xff, 0xff, 0xff, 0));
  EXPECT_EQ(filter.client_port_be, htons(53));
  EXPECT_EQ(filter.only_hedged, 1);
  EXPECT_EQ(filter.slower_ns, 5'000'000u);
  EXPECT_EQ(filter.rate, 7u);
}

TEST(TraceFilter, NamesThatDoNotExistAreNamed) {
  v1::TraceRequest request;
  request.set_service("dnss");
  EXPECT_TRUE(absl::IsNotFound(ErrorOf(request)));
  EXPECT_THAT(std::string(ErrorOf(request).message()), HasSubstr("no service \"dnss\", did you mean \"dns\"?"));
  request.set_service("dns");
  request.set_backend("c");
  EXPECT_THAT(std::string(ErrorOf(request).message()), HasSubstr("no backend \"c\"")) << "it is another service's";
}

TEST(TraceFilter, TextThatMeansNothingIsRefused) {
  for (const char* client : {"10.77.0.1/33", "fd77::/129", "10.77.0.1/-1", "10.77.0.1/", "host", "10.77/16"}) {
    v1::TraceRequest request;
    request.set_client(client);
    EXPECT_TRUE(absl::IsInvalidArgument(ErrorOf(request))) << client;
  }
  for (const char* key : {"2", "2a0", "2x", "000102030405060708090a0b0c0d0e0f10"}) {
    v1::TraceRequest request;
    request.set_key(key);
    EXPECT_TRUE(absl::IsInvalidArgument(ErrorOf(request))) << key;
  }
  v1::TraceRequest request;
  request.set_client_port(65536);
  EXPECT_TRUE(absl::IsInvalidArgument(ErrorOf(request)));
  request.set_client_port(0);
  request.set_rate(kMaxTraceRate + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ErrorOf(request)));
}

}  // namespace
}  // namespace hedgerow
