// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/hkv_client.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cluster/client/testing/fake_server.h"
#include "net/network_namespace.h"

namespace hedgerow::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr absl::Duration kShort = absl::Milliseconds(40);

class HkvClientTest : public testing::Test {
 protected:
  void Start(FakeServer::Faults faults = {}) {
    auto server = FakeServer::Start(store_, std::move(faults));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = HkvClient::Connect(server_->address());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  std::unique_ptr<FakeServer> server_;
  std::unique_ptr<HkvClient> client_;
};

TEST_F(HkvClientTest, WritesInASessionAndReads) {
  Start();
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  EXPECT_NE(client_->session(), 0u);
  ASSERT_TRUE(client_->Put("a", "x", kTimeout).ok());
  EXPECT_EQ(client_->Get("a", kTimeout).value(), "x");
  EXPECT_EQ(client_->Increment("n", 5, kTimeout).value(), 5);
  EXPECT_EQ(client_->Increment("n", -2, kTimeout).value(), 3);
  EXPECT_TRUE(client_->CompareAndSet("a", "x", "y", kTimeout).value());
  EXPECT_FALSE(client_->CompareAndSet("a", "x", "z", kTimeout).value());
  EXPECT_FALSE(client_->CompareAndSet("a", std::nullopt, "z", kTimeout).value());
  ASSERT_TRUE(client_->Delete("a", kTimeout).ok());
  EXPECT_EQ(client_->Get("a", kTimeout).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(client_->CompareAndSet("a", std::nullopt, "z", kTimeout).value());
}

TEST_F(HkvClientTest, SeveralKeysAreWrittenAtOnceOrNotAtAll) {
  Start();
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  const kv::Operation add{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 4};
  const kv::Operation put{.kind = kv::OperationKind::kPut, .key = "a", .value = "x"};
  EXPECT_THAT(client_->Write({add, put, add}, kTimeout).value(), ElementsAre("4", "", "8"));
  const kv::Operation absent{.kind = kv::OperationKind::kCompareAndSet, .key = "a", .value = "y"};
  EXPECT_EQ(client_->Write({add, absent}, kTimeout).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client_->Get("n", kTimeout).value(), "8");
  EXPECT_TRUE(client_->Write({}, kTimeout)->empty()) << "no operations keep the session alive";
}

TEST_F(HkvClientTest, TheFirstWriteOpensASessionAndTheOneAfterItsEndAnother) {
  std::atomic<uint64_t> ended = 0;
  Start([&ended](const wire::HkvRequest& request) {
    FakeServer::Treatment treatment;
    if (request.kind == wire::HkvKind::kWrite && request.client_id == ended) {
      treatment.instead = wire::HkvAnswer{.kind = request.kind,
                                          .status = wire::HkvStatus::kUnknownSession,
                                          .client_id = request.client_id,
                                          .seq = request.seq};
    }
    return treatment;
  });
  EXPECT_EQ(client_->SendWrite({}, kTimeout).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_->Get("n", kTimeout).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client_->session(), 0u) << "a reader needs none";
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
  const uint64_t session = client_->session();
  EXPECT_NE(session, 0u);
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 2);
  EXPECT_EQ(client_->session(), session);
  EXPECT_EQ(store_->sessions(), 1u);
  ended = session;
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 3);
  EXPECT_NE(client_->session(), session);
}

TEST_F(HkvClientTest, WritesWithoutASessionLeaveNoneBehind) {
  Start();
  client_->WriteWithoutSession();
  ASSERT_TRUE(client_->Put("a", "x", kTimeout).ok());
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 2);
  EXPECT_EQ(client_->Get("a", kTimeout).value(), "x");
  EXPECT_EQ(client_->session(), 0u);
  EXPECT_EQ(store_->sessions(), 0u);
}

TEST_F(HkvClientTest, ASourceAddressThatHasLeftTheHostIsReplaced) {
  const absl::Status tried = net::RunInNewNetworkNamespace([&]() -> absl::Status {
    const auto ip = [](const std::string& words) { return std::system(absl::StrCat("ip ", words).c_str()); };
    EXPECT_EQ(ip("address add 10.9.9.2/32 dev lo"), 0);
    EXPECT_EQ(ip("route replace local 127.0.0.1 dev lo src 10.9.9.2 table local"), 0);
    Start();
    client_->WriteWithoutSession();
    EXPECT_EQ(client_->Put("a", "x", kTimeout), absl::OkStatus());
    EXPECT_EQ(ip("address delete 10.9.9.2/32 dev lo"), 0);
    EXPECT_EQ(ip("route delete local 127.0.0.1 dev lo table local"), 0);
    EXPECT_EQ(client_->Put("a", "y", kTimeout), absl::OkStatus());
    EXPECT_EQ(store_->Serve({.kind = wire::HkvKind::kGet, .key = "a"}).value, "y");
    server_.reset();
    return absl::OkStatus();
  });
  EXPECT_EQ(tried, absl::OkStatus()) << "needs root: sudo ./dev test";
}

TEST_F(HkvClientTest, AfterARequestWithoutAnyAnswerItAsksByAnotherSocketUnderTheSameNumber) {
  std::atomic<uint16_t> unreachable = 0;
  Start([&](const wire::HkvRequest&) { return FakeServer::Treatment{.lost = server_->client_port() == unreachable}; });
  client_->WriteWithoutSession();
  ASSERT_EQ(client_->Put("a", "x", kTimeout), absl::OkStatus());
  unreachable = server_->client_port();
  const int fd = client_->fd();
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Put("a", "y", kShort)));
  const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);  // takes the lowest number that is free
  EXPECT_EQ(client_->Put("a", "y", kTimeout), absl::OkStatus());
  EXPECT_EQ(client_->fd(), fd);
  close(other);
}

TEST_F(HkvClientTest, ARequestThatIsGivenUpLeavesTheAnswersOfOthersAlone) {
  Start([&](const wire::HkvRequest& request) {
    return FakeServer::Treatment{.lost = request.kind == wire::HkvKind::kGet, .delay = std::chrono::milliseconds(300)};
  });
  client_->WriteWithoutSession();
  const kv::Operation put{.kind = kv::OperationKind::kPut, .key = "a", .value = "x"};
  ASSERT_TRUE(client_->SendWrite({put}, absl::Seconds(3)).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Get("a", kShort).status()));
  const std::vector<Outcome> outcomes = client_->Poll(kTimeout);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].answer.has_value());
}

TEST_F(HkvClientTest, RequestsThatAreUnderWayAtOnceAreAnsweredAgainAfterAnOutage) {
  std::atomic<bool> is_down = false;
  std::set<uint16_t> ports;
  std::atomic<const FakeServer*> server = nullptr;
  Start([&](const wire::HkvRequest&) {
    ports.insert(server.load()->client_port());
    return FakeServer::Treatment{.lost = is_down, .delay = std::chrono::milliseconds(5)};
  });
  server = server_.get();
  // A thousand requests a second, and the part of them that is answered.
  const auto ask = [&](absl::Duration lasts) {
    const HkvClient::Counters before = client_->counters();
    for (const absl::Time until = absl::Now() + lasts; absl::Now() < until; absl::SleepFor(absl::Milliseconds(1))) {
      EXPECT_TRUE(client_->SendGet("a", absl::Milliseconds(100)).ok());
      client_->Poll(absl::ZeroDuration());
    }
    const HkvClient::Counters& after = client_->counters();
    return static_cast<double>(after.answered - before.answered) / static_cast<double>(after.sent - before.sent);
  };
  const auto are_answered = [&] {  // a busy machine may stand still for half a second, and again
    for (int i = 0; i < 10; ++i)
      if (ask(absl::Milliseconds(500)) > 0.5) return true;
    return false;
  };
  const absl::Time begun = absl::Now();
  EXPECT_TRUE(are_answered());
  is_down = true;
  ask(absl::Milliseconds(150));  // the requests under way
  EXPECT_LT(ask(absl::Milliseconds(1350)), 0.1);
  is_down = false;
  EXPECT_TRUE(are_answered());
  server_.reset();
  EXPECT_LE(static_cast<double>(ports.size()), 2 + absl::ToDoubleSeconds(absl::Now() - begun))
      << "another one a second at most";
}

// What `child` writes in a process that was forked off.
bool InChild(const std::function<bool()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child() ? 0 : 1);
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(HkvClientTest, WithCredentialsAnAnswerWithoutTheRightTagIsNone) {
  Start();  // takes a trailer, and makes none
  const absl::StatusOr<std::unique_ptr<HkvClient>> client =
      HkvClient::Connect(server_->address(), 16, Credentials{.client = "web", .key = {.bytes = {1}}});
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Status status = (*client)->Get("k", absl::Milliseconds(300)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(),
              testing::HasSubstr("no answer with the right tag in time; one without says: no such key"));
  EXPECT_EQ((*client)->counters().unproven, 1u);
  EXPECT_FALSE(HkvClient::Connect(server_->address(), 16, Credentials{}).ok()) << "a name is needed";
}

TEST_F(HkvClientTest, AForkedChildWritesInASessionOfItsOwn) {
  Start();
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  ASSERT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
  const uint64_t session = client_->session();
  // Both would give the next write the number 2.
  EXPECT_TRUE(InChild([&] {
    return client_->session() == 0 && client_->Increment("n", 1, kTimeout).value() == 2 &&
           client_->session() != session && client_->Increment("n", 1, kTimeout).value() == 3;
  }));
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 4);
  EXPECT_EQ(client_->session(), session);
  EXPECT_EQ(store_->sessions(), 2u);
}

TEST_F(HkvClientTest, AForkedChildHasASocketOfItsOwnAndNothingOutstanding) {
  Start([](const wire::HkvRequest& request) {
    return FakeServer::Treatment{.lost = request.kind == wire::HkvKind::kGet && request.key == "lost"};
  });
  ASSERT_TRUE(client_->SendGet("lost", absl::Seconds(60)).ok());
  const int inherited = client_->fd();
  EXPECT_TRUE(InChild([&] {
    sockaddr_storage before{}, after{};
    socklen_t bytes = sizeof(before);
    if (getsockname(inherited, reinterpret_cast<sockaddr*>(&before), &bytes) != 0) return false;
    if (!client_->Poll(absl::Seconds(30)).empty()) return false;  // at once: the request is the parent's
    bytes = sizeof(after);
    if (getsockname(client_->fd(), reinterpret_cast<sockaddr*>(&after), &bytes) != 0) return false;
    return memcmp(&before, &after, sizeof(before)) != 0;
  }));
  EXPECT_EQ(client_->Get("a", kTimeout).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HkvClientTest, AForkedChildIsToldToOpenASessionBeforeItSendsAWrite) {
  Start();
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  EXPECT_TRUE(InChild([&] {
    const absl::Status refused = client_->SendWrite({}, kTimeout).status();
    return refused.code() == absl::StatusCode::kFailedPrecondition && client_->Open(kTimeout).ok() &&
           client_->SendWrite({}, kTimeout).ok();
  }));
}

TEST_F(HkvClientTest, AForkedChildOfAClientWithoutASessionNeedsNone) {
  Start();
  client_->WriteWithoutSession();
  ASSERT_TRUE(client_->Put("a", "x", kTimeout).ok());
  EXPECT_TRUE(InChild([&] { return client_->Put("a", "y", kTimeout).ok(); }));
  EXPECT_EQ(client_->Get("a", kTimeout).value(), "y");
  EXPECT_EQ(store_->sessions(), 0u);
}

TEST_F(HkvClientTest, WithoutAnAnswerTheCallEndsAtItsDeadlineAndIsNotSentAgain) {
  Start([](const wire::HkvRequest&) { return FakeServer::Treatment{.lost = true}; });
  const absl::Time before = absl::Now();
  EXPECT_EQ(client_->Get("a", kShort).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(absl::Now() - before, kShort);
  EXPECT_EQ(server_->requests(), 1u);
  EXPECT_EQ(client_->counters().gave_up, 1u);
}

TEST_F(HkvClientTest, ADuplicateAnswerIsCountedAndNothingElse) {
  Start([](const wire::HkvRequest&) { return FakeServer::Treatment{.answers = 2}; });
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 2);
  client_->Poll(absl::ZeroDuration());
  EXPECT_GE(client_->counters().unpaired, 2u);
  EXPECT_EQ(client_->counters().answered, 3u);
}

TEST_F(HkvClientTest, ErrorsSayWhatTheNodeSaid) {
  std::atomic<wire::HkvStatus> status = wire::HkvStatus::kNotLeader;
  Start([&status](const wire::HkvRequest& request) {
    wire::HkvAnswer answer{.kind = request.kind, .status = status, .client_id = request.client_id, .seq = request.seq};
    if (answer.status == wire::HkvStatus::kNotLeader) answer.hint = 3;
    return FakeServer::Treatment{.instead = answer};
  });
  const absl::Status not_leader = client_->Get("a", kTimeout).status();
  EXPECT_EQ(not_leader.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(not_leader.message()), HasSubstr("node 3"));
  status = wire::HkvStatus::kOverloaded;
  EXPECT_EQ(client_->Get("a", kTimeout).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server_->requests(), 2u) << "a read that is refused has done nothing";
  status = wire::HkvStatus::kUnknownSession;
  EXPECT_EQ(client_->Get("a", kTimeout).status().code(), absl::StatusCode::kFailedPrecondition);
}

// Refuses what `refuses` says.
FakeServer::Faults Overloaded(std::function<bool(const wire::HkvRequest&)> refuses) {
  return [refuses = std::move(refuses)](const wire::HkvRequest& request) {
    FakeServer::Treatment treatment;
    if (refuses(request)) {
      treatment.instead = wire::HkvAnswer{.kind = request.kind,
                                          .status = wire::HkvStatus::kOverloaded,
                                          .client_id = request.client_id,
                                          .seq = request.seq};
    }
    return treatment;
  };
}

bool IsWrite(const wire::HkvRequest& request) {
  return request.kind == wire::HkvKind::kWrite || request.kind == wire::HkvKind::kCancel;
}

TEST_F(HkvClientTest, AnOverloadedWriteIsSentAgainAndDoneOnce) {
  std::atomic<int> left = 3;
  // Another copy of the first, a proxy's, is done all the same.
  Start(Overloaded([&](const wire::HkvRequest& request) {
    if (!IsWrite(request)) return false;
    if (left == 3) store_->Serve(request);
    return left-- > 0;
  }));
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
  EXPECT_EQ(client_->counters().sent_again, 3u);
  left = 3;
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 2);
  EXPECT_EQ(client_->counters().unpaired, 0u);
}

TEST_F(HkvClientTest, AnOldServerIsNamed) {
  Start([](const wire::HkvRequest& request) {
    return FakeServer::Treatment{.instead = wire::HkvAnswer{.kind = request.kind,
                                                            .version = 1,
                                                            .status = wire::HkvStatus::kUnknownVersion,
                                                            .hint = 1,
                                                            .client_id = request.client_id,
                                                            .seq = request.seq}};
  });
  const absl::Status status = client_->Open(kTimeout);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the node speaks version 1 of hkv, and this client 2"));
}

TEST_F(HkvClientTest, WithoutASessionAnOverloadedWriteIsSentAgainUnderItsNonce) {
  std::atomic<int> left = 2;
  Start(Overloaded([&](const wire::HkvRequest& request) {
    if (left == 2) store_->Serve(request);
    return left-- > 0;
  }));
  client_->WriteWithoutSession();
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
}

TEST_F(HkvClientTest, AnOverloadedWriteThatIsReportedAsAnErrorIsNeverDone) {
  wire::HkvRequest first;
  Start(Overloaded([&](const wire::HkvRequest& request) {
    if (!IsWrite(request) || request.operations.empty()) return false;
    first = request;
    return true;
  }));
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  const absl::Status status = client_->Increment("n", 1, absl::Seconds(4)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  // A copy that was late is not done after it.
  server_.reset();
  store_->Serve(first);
  EXPECT_EQ(store_->Serve({.kind = wire::HkvKind::kGet, .key = "n"}).status, wire::HkvStatus::kNotFound);
}

TEST_F(HkvClientTest, AWriteThatIsOverloadedToTheLastIsInDoubt) {
  Start(Overloaded(IsWrite));
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  const absl::Status status = client_->Put("a", "x", absl::Milliseconds(100));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("may have been done or not"));
}

TEST_F(HkvClientTest, ManyRequestsAreUnderWayAtOnceAndEachEndsOnce) {
  Start();
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  for (int i = 0; i < 100; ++i) {
    const kv::Operation add{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1};
    ASSERT_TRUE(client_->SendWrite({add}, kTimeout).ok());
  }
  // A call in between takes its own answer and leaves the others.
  EXPECT_EQ(client_->Get("none", kTimeout).status().code(), absl::StatusCode::kNotFound);
  size_t ended = 0;
  while (true) {
    const std::vector<Outcome> outcomes = client_->Poll(kTimeout);
    if (outcomes.empty()) break;
    for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.answer.has_value());
    ended += outcomes.size();
  }
  EXPECT_EQ(ended, 100u);
  EXPECT_EQ(client_->Get("n", kTimeout).value(), "100");
}

TEST_F(HkvClientTest, NobodyListeningIsCountedAndIsNoErrorOfTheRequest) {
  Start();
  server_.reset();
  EXPECT_EQ(client_->Get("a", kShort).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client_->Get("a", kShort).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client_->counters().refused, 2u);
  EXPECT_EQ(client_->counters().send_failed, 0u);
}

TEST_F(HkvClientTest, ATimeoutSaysThatNothingListens) {
  Start();
  const std::string address = server_->address();
  server_.reset();
  EXPECT_EQ(client_->Get("a", kShort).status().message(),
            absl::StrCat("no answer in time; ", address, " refuses it: nothing listens there"));
}

// As a name whose first address is of the other family, on a host where the server listens on the second one only.
class HkvClientOfANameTest : public HkvClientTest {
 protected:
  static HkvClient::Address AddressOf(const std::string& text) { return HkvClient::AddressesOf(text)->front(); }
  std::string Port() const { return server_->address().substr(server_->address().rfind(':')); }
  void Connect(const std::vector<std::string>& addresses) {
    std::vector<HkvClient::Address> all;
    for (const std::string& address : addresses) all.push_back(AddressOf(address));
    auto client = HkvClient::ConnectTo(std::move(all));
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
};

TEST_F(HkvClientOfANameTest, AnAddressThatRefusesIsLeftForTheNextOne) {
  Start();
  Connect({"[::1]" + Port(), "127.91.4.1" + Port(), server_->address()});
  ASSERT_TRUE(client_->Open(kTimeout).ok());
  ASSERT_TRUE(client_->Put("a", "x", kTimeout).ok());
  EXPECT_EQ(client_->Increment("n", 1, kTimeout).value(), 1);
  EXPECT_EQ(client_->Get("a", kTimeout).value(), "x");
  EXPECT_GE(client_->counters().refused, 1u);
  EXPECT_LE(client_->counters().refused, 2u) << "once for each that refuses, and never again";
}

TEST_F(HkvClientOfANameTest, WhatWasUnderWayIsSentToTheNextOneAndDoneOnce) {
  Start();
  Connect({"127.91.4.1" + Port(), server_->address()});
  client_->WriteWithoutSession();
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(client_->SendWrite({{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1}}, kTimeout).ok());
  size_t done = 0;
  while (done < 50) {
    const std::vector<Outcome> outcomes = client_->Poll(kTimeout);
    ASSERT_FALSE(outcomes.empty());
    for (const Outcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.answer.has_value());
      EXPECT_EQ(outcome.answer->status, wire::HkvStatus::kOk);
    }
    done += outcomes.size();
  }
  EXPECT_EQ(client_->Get("n", kTimeout).value(), "50");
}

TEST_F(HkvClientOfANameTest, WhereNoneAnswersTheRequestEndsAndEachWasTriedOnce) {
  Start();
  const std::string port = Port();
  server_.reset();
  Connect({"127.91.4.1" + port, "127.91.4.2" + port, "127.91.4.3" + port});
  EXPECT_EQ(client_->Get("a", kShort).status().message(),
            absl::StrCat("no answer in time; 127.91.4.3", port, " refuses it: nothing listens there"));
  EXPECT_EQ(client_->counters().refused, 3u);
}

TEST_F(HkvClientOfANameTest, TheAddressThatHasAnsweredIsKept) {
  Start();
  FakeServer& other = *server_;
  auto second = FakeServer::Start(store_);
  ASSERT_TRUE(second.ok());
  Connect({other.address(), (*second)->address()});
  ASSERT_TRUE(client_->Put("a", "x", kTimeout).ok());
  server_.reset();
  EXPECT_FALSE(client_->Get("a", kShort).ok()) << "a server that restarts is back where it was";
  EXPECT_EQ((*second)->requests(), 0u);
}

TEST(HkvClientAddressTest, BadAddressesAreNamed) {
  for (const char* server : {"10.0.0.1", "10.0.0.1:", ":4801", "fd00::1:4801", "10.0.0.1:http", "10.0.0.1:0",
                             "10.0.0.1:70337", "10.0.0.1:-1"}) {
    const absl::Status status = HkvClient::Connect(server).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << server;
    EXPECT_THAT(std::string(status.message()), HasSubstr(server));
  }
  EXPECT_TRUE(HkvClient::Connect("[::1]:4801").ok());
  EXPECT_TRUE(HkvClient::Connect("localhost:4801").ok());
}

}  // namespace
}  // namespace hedgerow::client
