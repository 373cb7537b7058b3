// SPDX-License-Identifier: Apache-2.0
//
// The server over real sockets: what it answers, and that nobody who is slow, idle or gone keeps it from answering
// others.

#include "operate/http_server.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"
#include "operate/scrape_test.h"

namespace hedgerow::operate {
namespace {

HttpRoute Hello() {
  return {.path = "/hello", .answer = [](const HttpRequest& request) {
            return HttpResponse{.body = absl::StrCat("hello ", request.Parameter("name"))};
          }};
}

std::unique_ptr<HttpServer> Serve(std::vector<HttpRoute> routes) {
  auto server = HttpServer::Start("127.0.0.1:0", "listen", std::move(routes));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// A connection that says `bytes` and waits.
net::UniqueFd Connect(const HttpServer& server, const std::string& bytes = "") {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(server.address().substr(server.address().rfind(':') + 1), &port));
  address.sin_port = htons(static_cast<uint16_t>(port));
  net::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}

std::string ReadAll(const net::UniqueFd& fd) {
  std::string answer;
  char buffer[65536];
  for (ssize_t got = 0; (got = read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

TEST(HttpServer, AnswersByPath) {
  const auto server = Serve({Hello()});
  const std::string answer = HttpGet(server->address(), "/hello?name=you");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\nhello you")) << answer;
  EXPECT_TRUE(absl::StartsWith(HttpGet(server->address(), "/hello/"), "HTTP/1.1 404 "));
  EXPECT_TRUE(absl::StartsWith(HttpGet(server->address(), "/../hello"), "HTTP/1.1 404 "));
}

TEST(HttpServer, RefusesInWords) {
  const auto server = Serve({Hello()});
  const std::string stranger = ReadAll(Connect(*server, "GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
  EXPECT_TRUE(absl::StartsWith(stranger, "HTTP/1.1 421 ")) << stranger;
  EXPECT_FALSE(absl::StrContains(stranger, "hello"));
  // With a body on its way that nobody reads: the answer arrives all the same.
  const std::string posted =
      ReadAll(Connect(*server, absl::StrCat("POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000\r\n\r\n",
                                            std::string(30'000, 'x'))));
  EXPECT_TRUE(absl::StartsWith(posted, "HTTP/1.1 405 ")) << posted;
  const std::string head = ReadAll(Connect(*server, "HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_TRUE(absl::EndsWith(head, "\r\n\r\n")) << head;
}

TEST(HttpServer, ReadsAHeadInPieces) {
  const auto server = Serve({Hello()});
  const net::UniqueFd fd = Connect(*server);
  for (const char c : std::string("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")) {
    ASSERT_EQ(write(fd.get(), &c, 1), 1);
  }
  EXPECT_TRUE(absl::EndsWith(ReadAll(fd), "hello "));
}

TEST(HttpServer, IdleConnectionsKeepNobodyOut) {
  const auto server = Serve({Hello()});
  std::vector<net::UniqueFd> idle;
  for (size_t i = 0; i < 2 * HttpServer::kMaxConnections; ++i) idle.push_back(Connect(*server));
  const absl::Time before = absl::Now();
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
  EXPECT_LT(absl::Now() - before, absl::Seconds(2));
  // The oldest were closed for the newest.
  char byte = 0;
  EXPECT_EQ(read(idle.front().get(), &byte, 1), 0);
}

TEST(HttpServer, AnAnswerThatTakesLongHoldsUpNoOther) {
  absl::Notification go;
  const auto server = Serve({Hello(),
                             {.path = "/slow",
                              .answer =
                                  [&go](const HttpRequest&) {
                                    go.WaitForNotification();
                                    return HttpResponse{.body = "at last"};
                                  },
                              .may_wait = true}});
  const net::UniqueFd slow = Connect(*server, "GET /slow HTTP/1.0\r\n\r\n");
  const net::UniqueFd behind = Connect(*server, "GET /slow HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
  go.Notify();
  EXPECT_TRUE(absl::EndsWith(ReadAll(slow), "at last"));
  EXPECT_TRUE(absl::EndsWith(ReadAll(behind), "at last"));
}

TEST(HttpServer, WhoLeavesBeforeTheAnswerHarmsNobody) {
  absl::Notification entered, go;
  std::atomic<int> calls = 0;
  const auto server = Serve({Hello(),
                             {.path = "/slow",
                              .answer =
                                  [&](const HttpRequest&) {
                                    if (++calls == 1) {
                                      entered.Notify();
                                      go.WaitForNotification();
                                    }
                                    return HttpResponse{.body = "at last"};
                                  },
                              .may_wait = true}});
  {
    const net::UniqueFd gone = Connect(*server, "GET /slow HTTP/1.0\r\n\r\n");
    entered.WaitForNotification();
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(gone.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  go.Notify();
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/slow"), "at last"));
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
}

TEST(HttpServer, ALongAnswerArrivesWholeAtASlowReader) {
  const std::string much(5 << 20, 'm');
  const auto server = Serve({{.path = "/much", .answer = [&](const HttpRequest&) { return HttpResponse{.body = much}; }}});
  const net::UniqueFd fd = Connect(*server, "GET /much HTTP/1.0\r\n\r\n");
  absl::SleepFor(absl::Milliseconds(200));
  const std::string answer = ReadAll(fd);
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, much.size());
}

TEST(HttpServer, EndsAtOnceThoughConnectionsAreOpen) {
  auto server = Serve({Hello()});
  const net::UniqueFd idle = Connect(*server, "GET /hel");
  const std::string address = server->address();
  const absl::Time before = absl::Now();
  server.reset();
  EXPECT_LT(absl::Now() - before, absl::Milliseconds(500));
  EXPECT_EQ(HttpGet(address, "/hello"), "");
}

TEST(HttpServer, ManyAtOnceAreAllAnswered) {
  const auto server = Serve({Hello()});
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        if (absl::EndsWith(HttpGet(server->address(), absl::StrCat("/hello?name=", j)), absl::StrCat("hello ", j)))
          ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 400);
}

}  // namespace
}  // namespace hedgerow::operate
