// SPDX-License-Identifier: Apache-2.0
#include "proxy/page/page.h"

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "config/json.h"
#include "operate/embedded_file.h"
#include "proxy/page/steer_groups.h"
#include "proxy_page_assets.h"

namespace hedgerow {
namespace {

using operate::HttpRequest;
using operate::HttpResponse;

std::string ContentType(absl::string_view name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

HttpResponse Data(const History& history, const HttpRequest& request) {
  uint64_t after = 0;
  const absl::string_view text = request.Parameter("after");
  if (!text.empty() && !absl::SimpleAtoi(text, &after)) {
    return {.status = 400, .body = "after is the number of a sample\n"};
  }
  return {.content_type = "application/json", .body = ToCompactJson(history.Since(after, absl::Now()))};
}

}  // namespace

std::vector<operate::HttpRoute> PageRoutes(const History& history, const std::string& steer_run_dir) {
  std::vector<operate::HttpRoute> routes;
  for (const operate::EmbeddedFile& file : ProxyPageAssets()) {
    routes.push_back({.path = file.name == "index.html" ? "/" : absl::StrCat("/", file.name),
                      .answer = [&file, type = ContentType(file.name)](const HttpRequest&) {
                        return HttpResponse{.content_type = type, .body = std::string(file.bytes)};
                      }});
  }
  routes.push_back(
      {.path = kPageDataPath, .answer = [&history](const HttpRequest& request) { return Data(history, request); }});
  // A supervisor may be slow to answer.
  routes.push_back({.path = kSteerDataPath,
                    .answer =
                        [steer_run_dir](const HttpRequest&) {
                          return HttpResponse{.content_type = "application/json",
                                              .body = ToCompactJson(ReadSteerGroups(steer_run_dir, absl::Now()))};
                        },
                    .may_wait = true});
  return routes;
}

std::string NewBootText() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

}  // namespace hedgerow
