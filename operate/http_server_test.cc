// SPDX-License-Identifier: Apache-2.0
//
// The server over real sockets: what it answers, and that nobody who is slow, idle or gone keeps it from
// answering others.

#include "operate/http_server.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <ctime>
#include <filesystem>
#include <thread>

#include <openssl/ssl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"
#include "operate/scrape_test.h"
#include "operate/tls_testing.h"

std::atomic<int> duplicates_refused = 0;
std::atomic<bool> no_descriptor_left = false;

// In place of the C library's: a process that has no descriptor left for a copy of another.
extern "C" int fcntl(int fd, int command, ...) {
  static const auto real = reinterpret_cast<int (*)(int, int, ...)>(dlsym(RTLD_NEXT, "fcntl"));
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (command != F_DUPFD_CLOEXEC || !no_descriptor_left) return real(fd, command, argument);
  ++duplicates_refused;
  errno = EMFILE;
  return -1;
}

namespace hedgerow::operate {
namespace {

// What waits for an idle connection to time out takes longer.
constexpr absl::Duration kNotIdleOut = absl::Seconds(HttpServer::kIdleSeconds / 2);

HttpRoute Hello() {
  return {.path = "/hello", .answer = [](const HttpRequest& request) {
            return HttpResponse{.body = absl::StrCat("hello ", request.Parameter("name"))};
          }};
}

std::unique_ptr<HttpServer> Serve(std::vector<HttpRoute> routes,
                                  std::shared_ptr<HttpCounters> counters = std::make_shared<HttpCounters>()) {
  auto server = HttpServer::Start("127.0.0.1:0", "listen", std::move(routes), std::move(counters));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

void ConnectWith(const net::UniqueFd& fd, const std::string& to, const std::string& bytes) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(to.substr(to.rfind(':') + 1), &port));
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

// A connection that says `bytes` and waits.
net::UniqueFd Connect(const std::string& to, const std::string& bytes = "") {
  net::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ConnectWith(fd, to, bytes);
  return fd;
}
net::UniqueFd Connect(const HttpServer& server, const std::string& bytes = "") {
  return Connect(server.address(), bytes);
}

std::string ReadAll(const net::UniqueFd& fd) {
  std::string answer;
  char buffer[65536];
  for (ssize_t got = 0; (got = read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

// Waits in its first call until `go`.
HttpRoute Slow(absl::Notification& go, std::atomic<int>& calls) {
  return {.path = "/slow",
          .answer =
              [&](const HttpRequest&) {
                if (++calls == 1) go.WaitForNotification();
                return HttpResponse{.body = "at last"};
              },
          .may_wait = true};
}

void AwaitCalls(const std::atomic<int>& calls, int wanted) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (calls < wanted && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_GE(calls, wanted);
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
  const std::string with_body =
      ReadAll(Connect(*server, "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"));
  EXPECT_TRUE(absl::StartsWith(with_body, "HTTP/1.1 413 ")) << with_body;
  const std::string head =
      ReadAll(Connect(*server, "HEAD /hello?name=you HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(absl::StrContains(head, "Content-Length: 9\r\n")) << head;
  EXPECT_TRUE(absl::EndsWith(head, "\r\n\r\n")) << head;
}

// The library's part.
TEST(HttpServer, RefusesWhatIsNoRequest) {
  const auto server = Serve({Hello()});
  const std::string long_path(100'000, 'a');
  for (const auto& [bytes, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"HELLO\r\n\r\n", ""},
           {"GET /hello HTTP/2.0\r\nHost: localhost\r\n\r\n", "HTTP/1.1 505 "},
           {absl::StrCat("GET /", long_path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"), "HTTP/1.1 4"},
           {absl::StrCat("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: ", long_path, "\r\n\r\n"), "HTTP/1.1 431 "}}) {
    const std::string answer = ReadAll(Connect(*server, bytes));
    EXPECT_TRUE(absl::StartsWith(answer, wanted)) << bytes.substr(0, 20) << ": " << answer.substr(0, 100);
    EXPECT_FALSE(absl::StrContains(answer, "HTTP/1.1 2")) << answer;
  }
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
}

TEST(HttpServer, EveryAnswerIsStrict) {
  const auto server = Serve({Hello()});
  for (const char* path : {"/hello", "/nothing"}) {
    const std::string answer = HttpGet(server->address(), path);
    for (const char* header :
         {"Cache-Control: no-store\r\n", "default-src 'none'; script-src 'self'; ", "frame-ancestors 'none'",
          "X-Content-Type-Options: nosniff\r\n", "Content-Type: text/plain; charset=utf-8\r\n"}) {
      EXPECT_TRUE(absl::StrContains(answer, header)) << path << " " << header;
    }
  }
}

TEST(HttpServer, OnlyAPlusInAQueryIsDecoded) {
  const auto server = Serve({Hello()});
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello?name=%41+b&name=c"), "hello %41 b"));
  EXPECT_TRUE(absl::StartsWith(HttpGet(server->address(), "/%68ello"), "HTTP/1.1 404 "));
}

TEST(HttpServer, OneConnectionMayAskAgain) {
  const auto server = Serve({Hello()});
  const std::string question = "GET /hello HTTP/1.1\r\nHost: localhost\r\n";
  const net::UniqueFd fd = Connect(*server, question + "\r\n");
  std::string answer;
  char buffer[4096];
  while (!absl::EndsWith(answer, "hello ")) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    ASSERT_GT(got, 0) << answer;
    answer.append(buffer, static_cast<size_t>(got));
  }
  const std::string again = question + "Connection: close\r\n\r\n";
  ASSERT_EQ(write(fd.get(), again.data(), again.size()), static_cast<ssize_t>(again.size()));
  EXPECT_TRUE(absl::EndsWith(ReadAll(fd), "hello "));
}

TEST(HttpServer, ReadsAHeadInPieces) {
  const auto server = Serve({Hello()});
  const net::UniqueFd fd = Connect(*server);
  for (const char c : std::string("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) {
    ASSERT_EQ(write(fd.get(), &c, 1), 1);
  }
  EXPECT_TRUE(absl::EndsWith(ReadAll(fd), "hello "));
}

TEST(HttpServer, IdleConnectionsKeepNoClientOut) {
  const auto counters = std::make_shared<HttpCounters>();
  const auto server = Serve({Hello()}, counters);
  std::vector<net::UniqueFd> idle;
  for (size_t i = 0; i < 2 * HttpServer::kMaxConnections; ++i) idle.push_back(Connect(*server));
  const absl::Time before = absl::Now();
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
  EXPECT_LT(absl::Now() - before, kNotIdleOut);
  // The oldest were closed for the newest.
  char byte = 0;
  EXPECT_EQ(read(idle.front().get(), &byte, 1), 0);
  EXPECT_GE(counters->connections_closed, HttpServer::kMaxConnections);
}

// Each of them takes a little of a long answer, and no more.
TEST(HttpServer, SlowReadersKeepNoClientOut) {
  const std::string much(2 << 20, 'm');
  const auto server =
      Serve({Hello(), {.path = "/much", .answer = [&](const HttpRequest&) { return HttpResponse{.body = much}; }}});
  std::vector<net::UniqueFd> slow;
  for (size_t i = 0; i < 2 * HttpServer::kMaxConnections; ++i) {
    slow.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int little = 4096;
    setsockopt(slow.back().get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    ConnectWith(slow.back(), server->address(), "GET /much HTTP/1.0\r\n\r\n");
    char byte = 0;
    ASSERT_EQ(read(slow.back().get(), &byte, 1), 1) << i;
  }
  const absl::Time before = absl::Now();
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
  EXPECT_LT(absl::Now() - before, kNotIdleOut);
}

TEST(HttpServer, MoreThanAFewThatWaitAreTurnedAway) {
  absl::Notification go;
  std::atomic<int> calls = 0;
  const auto counters = std::make_shared<HttpCounters>();
  const auto server = Serve({Hello(), Slow(go, calls)}, counters);
  std::vector<net::UniqueFd> waiting;
  for (size_t i = 0; i <= HttpServer::kMaxWaiting; ++i) {
    waiting.push_back(Connect(*server, "GET /slow HTTP/1.0\r\n\r\n"));
    AwaitCalls(calls, 1);
  }
  // The one request too many is the one that the server read last, whichever client sent it.
  std::vector<pollfd> answers;
  for (const net::UniqueFd& each : waiting) answers.push_back({each.get(), POLLIN, 0});
  if (poll(answers.data(), answers.size(), 10'000) != 1) {
    go.Notify();
    FAIL() << "not one was turned away";
  }
  const auto turned_away =
      std::find_if(answers.begin(), answers.end(), [](const pollfd& each) { return each.revents != 0; });
  const std::string refusal = ReadAll(waiting[static_cast<size_t>(turned_away - answers.begin())]);
  EXPECT_TRUE(absl::StartsWith(refusal, "HTTP/1.1 503 ")) << refusal;
  waiting.erase(waiting.begin() + (turned_away - answers.begin()));
  EXPECT_EQ(counters->requests_turned_away, 1u);
  // Nor can connections push out those that wait, or be kept out by them.
  std::vector<net::UniqueFd> idle;
  for (size_t i = 0; i < 2 * HttpServer::kMaxConnections; ++i) idle.push_back(Connect(*server));
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
  go.Notify();
  for (const net::UniqueFd& each : waiting) EXPECT_TRUE(absl::EndsWith(ReadAll(each), "at last"));
  EXPECT_EQ(calls, static_cast<int>(HttpServer::kMaxWaiting));
}

// The library would ask for a descriptor again and again, on a whole processor.
TEST(HttpServer, AProcessWithoutDescriptorsDoesNotSpin) {
  const auto server = Serve({Hello()});
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto at_rest = descriptors();
  EXPECT_TRUE(absl::EndsWith(HttpGet(server->address(), "/hello"), "hello "));
  for (int i = 0; i < 1000 && descriptors() > at_rest; ++i) absl::SleepFor(absl::Milliseconds(10));
  ASSERT_EQ(descriptors(), at_rest) << "the server has closed its end";
  const net::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int lowest_free = dup(client.get());
  close(lowest_free);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ConnectWith(client, server->address(), "GET /hello HTTP/1.0\r\n\r\n");
  const clock_t used = clock();
  absl::SleepFor(absl::Milliseconds(500));
  const double busy_s = static_cast<double>(clock() - used) / CLOCKS_PER_SEC;
  pollfd answered{client.get(), POLLIN, 0};
  EXPECT_EQ(poll(&answered, 1, 0), 0) << "there was a descriptor after all";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(busy_s, 0.1);
  EXPECT_TRUE(absl::EndsWith(ReadAll(client), "hello "));
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

TEST(HttpServer, AClientThatLeavesBeforeTheAnswerHarmsNoOther) {
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
  const auto server =
      Serve({{.path = "/much", .answer = [&](const HttpRequest&) { return HttpResponse{.body = much}; }}});
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
  EXPECT_LT(absl::Now() - before, kNotIdleOut);
  EXPECT_EQ(HttpGet(address, "/hello"), "");
}

TEST(HttpServer, EndsThoughRequestsWait) {
  absl::Notification go;
  std::atomic<int> calls = 0;
  const auto counters = std::make_shared<HttpCounters>();
  auto server = Serve({Slow(go, calls)}, counters);
  const net::UniqueFd asked = Connect(*server, "GET /slow HTTP/1.0\r\n\r\n");
  AwaitCalls(calls, 1);
  std::vector<net::UniqueFd> behind;
  for (int i = 0; i < 4; ++i) behind.push_back(Connect(*server, "GET /slow HTTP/1.0\r\n\r\n"));
  const std::string address = server->address();
  std::thread ends([running = std::move(server)]() mutable { running.reset(); });
  // A server that ends turns requests away. One that came just before that waits.
  for (int i = 0; i < 10 && counters->requests_turned_away == 0; ++i) {
    behind.push_back(Connect(address, "GET /slow HTTP/1.0\r\n\r\n"));
    for (int j = 0; j < 100 && counters->requests_turned_away == 0; ++j) absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GT(counters->requests_turned_away, 0u);
  go.Notify();
  ends.join();
  EXPECT_EQ(calls, 1) << "none is asked for afterwards";
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

// What a client gets that trusts `authority` and says so over TLS; "refused" where there is no handshake.
std::string AskOverTls(const HttpServer& server, const std::string& authority, const std::string& header) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::unique_ptr<BIO, decltype(&BIO_free)> pem(
      BIO_new_mem_buf(authority.data(), static_cast<int>(authority.size())), BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> trusted(PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr),
                                                            X509_free);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), trusted.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  const net::UniqueFd fd = Connect(server);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  signal(SIGPIPE, SIG_IGN);  // the server may have hung up already, and SSL_write raises it
  SSL_set_fd(session.get(), fd.get());
  if (SSL_connect(session.get()) != 1) return "refused";
  const std::string request =
      absl::StrCat("GET /hello HTTP/1.1\r\nHost: proxy1.example.com\r\nConnection: close\r\n", header, "\r\n");
  SSL_write(session.get(), request.data(), static_cast<int>(request.size()));
  std::string answer;
  char buffer[4096];
  for (int got = 0; (got = SSL_read(session.get(), buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(got));
  return answer;
}

TEST(HttpServer, WithTlsAndATokenAnswersThoseWhoShowIt) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/hedgerow-https-", getpid());
  const TestAuthority first("first"), second("second");
  const TlsPaths files = WriteTlsFiles(folder, first.Sign("proxy1.example.com"), first.Pem());
  const std::string token = "0123456789abcdef0123456789abcdef", other = "fedcba9876543210fedcba9876543210";
  WriteTlsFile(folder + "/token", token + "\n");
  const auto counters = std::make_shared<HttpCounters>();
  const HttpAccess access = {.certificate = files.certificate, .key = files.key, .token = folder + "/token"};
  auto server = HttpServer::Start("127.0.0.1:0", "listen", {Hello()}, counters, access, absl::Milliseconds(20));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT((*server)->address(), testing::StartsWith("https://127.0.0.1:"));
  const auto ask = [&](const TestAuthority& trusted, const std::string& shown) {
    return AskOverTls(**server, trusted.Pem(),
                      shown.empty() ? "" : absl::StrCat("Authorization: Bearer ", shown, "\r\n"));
  };
  EXPECT_THAT(ask(first, token), testing::AllOf(testing::StartsWith("HTTP/1.1 200"), testing::HasSubstr("hello")));
  EXPECT_EQ(counters->requests_unauthorized, 0u);
  EXPECT_NEAR(static_cast<double>(counters->certificate_ends_s),
              static_cast<double>(absl::ToUnixSeconds(absl::Now())) + 3600, 60);
  EXPECT_THAT(ask(first, ""),
              testing::AllOf(testing::StartsWith("HTTP/1.1 401"), testing::HasSubstr("WWW-Authenticate: Basic")));
  EXPECT_THAT(ask(first, other), testing::StartsWith("HTTP/1.1 401"));
  EXPECT_EQ(counters->requests_unauthorized, 2u);
  EXPECT_EQ(ask(second, token), "refused");
  // Without TLS there is nothing.
  EXPECT_THAT(ReadAll(Connect(**server, "GET /hello HTTP/1.0\r\n\r\n")), testing::Not(testing::HasSubstr("hello")));

  // Both files are exchanged while it serves; a file that cannot be used changes nothing.
  WriteTlsFile(folder + "/token", token + "\n" + other + "\n");
  const auto soon = [&](const auto& holds) {
    const absl::Time end = absl::Now() + kNotIdleOut;
    while (!holds() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
    return holds();
  };
  EXPECT_TRUE(soon([&] { return absl::StartsWith(ask(first, other), "HTTP/1.1 200"); }));
  EXPECT_THAT(ask(first, token), testing::StartsWith("HTTP/1.1 200"));
  WriteTlsFile(folder + "/token", "nonsense\n");
  WriteTlsFiles(folder, second.Sign("proxy1.example.com"), second.Pem());
  EXPECT_TRUE(soon([&] { return absl::StartsWith(ask(second, token), "HTTP/1.1 200"); }));
  EXPECT_EQ(ask(first, token), "refused");
  std::filesystem::remove_all(folder);
}

TEST(HttpServer, WithoutADescriptorANewCertificateWaitsAndTheFormerOneServesOn) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/hedgerow-https-full-", getpid());
  const TestAuthority first("first"), second("second");
  const TlsPaths files = WriteTlsFiles(folder, first.Sign("proxy1.example.com"), first.Pem());
  const HttpAccess access = {.certificate = files.certificate, .key = files.key};
  auto server = HttpServer::Start("127.0.0.1:0", "listen", {Hello()}, std::make_shared<HttpCounters>(), access,
                                  absl::Milliseconds(20));
  ASSERT_TRUE(server.ok()) << server.status();
  no_descriptor_left = true;
  WriteTlsFiles(folder, second.Sign("proxy1.example.com"), second.Pem());
  const absl::Time end = absl::Now() + kNotIdleOut;
  while (duplicates_refused < 4 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(duplicates_refused, 4) << "it was tried";
  EXPECT_THAT(AskOverTls(**server, first.Pem(), ""), testing::StartsWith("HTTP/1.1"));
  no_descriptor_left = false;
  const auto renewed = [&] { return absl::StartsWith(AskOverTls(**server, second.Pem(), ""), "HTTP/1.1"); };
  while (!renewed() && absl::Now() < end + kNotIdleOut) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(renewed());
  std::filesystem::remove_all(folder);
}

TEST(HttpServer, DoesNotStartWithFilesThatCannotBeUsed) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/hedgerow-https-bad-", getpid());
  const TestAuthority authority("an authority");
  const TlsPaths files = WriteTlsFiles(folder, authority.Sign("a.example.com"), authority.Pem());
  const auto start = [&](const HttpAccess& access) {
    return std::string(HttpServer::Start("127.0.0.1:0", "listen", {Hello()}, std::make_shared<HttpCounters>(), access)
                           .status()
                           .message());
  };
  EXPECT_THAT(start({.token = folder + "/none"}), testing::HasSubstr("/none cannot be opened"));
  EXPECT_THAT(start({.certificate = files.certificate, .key = files.certificate}), testing::HasSubstr("node.pem"));
  WriteTlsFile(folder + "/open", "0123456789abcdef0123456789abcdef\n", 0644);
  EXPECT_THAT(start({.token = folder + "/open"}), testing::HasSubstr("/open"));
  std::filesystem::remove_all(folder);
}

TEST(HttpServer, OnAUnixSocketIsForItsGroup) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/hedgerow-http-", getpid(), ".sock");
  const HttpAccess access = {.group = absl::StrCat(getegid())};
  auto server = HttpServer::Start("unix:" + path, "listen", {Hello()}, std::make_shared<HttpCounters>(), access);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->address(), "unix:" + path);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0660u);
  sockaddr_un address{.sun_family = AF_UNIX};
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  memcpy(address.sun_path, path.c_str(), path.size());
  const net::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET /hello?name=you HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  EXPECT_THAT(ReadAll(fd), testing::HasSubstr("hello you"));
  const auto second = HttpServer::Start("unix:" + path, "metrics.listen", {Hello()});
  EXPECT_THAT(std::string(second.status().message()),
              testing::HasSubstr("another process listens on the socket of the metrics"));
  EXPECT_THAT(std::string(HttpServer::Start("unix:" + path + "2", "listen", {}, std::make_shared<HttpCounters>(),
                                            {.group = "no-such-group"})
                              .status()
                              .message()),
              testing::HasSubstr("does not exist on this host"));
  server->reset();
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

}  // namespace
}  // namespace hedgerow::operate
