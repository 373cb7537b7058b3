// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP server for a program's own pages on its own host, and with TLS and a token for others: the metrics, and
// the proxy's live page. libmicrohttpd talks to all connections in a thread of its own; a second thread runs the
// handlers that may have to wait, so that a waiting handler (a scrape of a loop that is stuck) does not hold up the
// pages of the first thread. Everything is bounded and counted; without a connection nothing runs at all. docs/adr/0009
// says why this library. Started by ServeMetricsPage.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operate/http_access.h"
#include "operate/http_rules.h"

namespace hedgerow::operate {

struct HttpRoute {
  std::string path;  // the whole path: "/metrics"
  std::function<HttpResponse(const HttpRequest&)> answer;
  // True: `answer` may take long, and is called on the second thread. All others are called on the first one
  // and must not wait for anything.
  bool may_wait = false;
};

// What the bounds have cost the clients.
struct HttpCounters {
  std::atomic<uint64_t> connections_closed = 0;     // for newer ones
  std::atomic<uint64_t> requests_turned_away = 0;   // too many waited already
  std::atomic<uint64_t> requests_unauthorized = 0;  // without the token, or with a wrong one
  std::atomic<int64_t> certificate_ends_s = 0;      // of the one in use, in Unix time; 0: without TLS
};

class HttpServer {
 public:
  // A new connection beyond these closes the connection that has been idle for longest. If none is idle, it
  // closes the connection with the oldest request that does not wait for the second thread. Browsers open
  // connections ahead of need.
  static constexpr size_t kMaxConnections = 64;
  // Requests for the second thread; more are answered 503 at once. So there is always a connection that can be
  // closed.
  static constexpr size_t kMaxWaiting = 16;
  static constexpr unsigned kIdleSeconds = 20;
  static constexpr absl::Duration kRenewal = absl::Seconds(10);

  // `listen` is "127.0.0.1:9464" or "[::1]:9464", and port 0 takes a free one; or "unix:/PATH". `setting` is the name
  // of its key in the configuration, for the errors: InvalidArgument when it is no such text, Unavailable when the port
  // is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& listen, const std::string& setting, std::vector<HttpRoute> routes,
      std::shared_ptr<HttpCounters> counters = std::make_shared<HttpCounters>(), const HttpAccess& access = {},
      absl::Duration renewal = kRenewal);
  // Waits for an answer that is being made. None is asked for afterwards.
  virtual ~HttpServer() = default;
  // Where it really listens: "127.0.0.1:9464", "https://10.0.0.1:9464", "unix:/PATH".
  virtual std::string address() const = 0;
};

}  // namespace hedgerow::operate
