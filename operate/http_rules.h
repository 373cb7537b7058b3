// SPDX-License-Identifier: Apache-2.0
//
// Requests and responses of our programs' pages, and the rules that stand before every handler: GET and HEAD
// only, no bodies, only Host names that no DNS server can give to another machine, and headers that let a page
// load our own files and nothing else. Pure; operate/http_server.cc calls it with what libmicrohttpd parsed.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace hedgerow::operate {

struct HttpRequest {
  std::string method = "GET";                                        // or HEAD
  std::string path = "/";                                            // as sent: nothing is decoded
  std::vector<std::pair<std::string, std::string>> parameters = {};  // of the query; but for +, a space, as sent

  // The value of the first parameter of this name; empty when there is none.
  absl::string_view Parameter(absl::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// What of a request's head the rules are about.
struct HttpHead {
  std::string method = "";
  std::string version = "";             // "HTTP/1.1"
  std::vector<std::string> hosts = {};  // the value of each Host
  bool has_body = false;
  std::vector<std::string> authorizations = {};  // the value of each Authorization
};

enum class HostRule {
  kLoopback,  // names of loopback only
  kAny,       // the client has proved itself, or asks over a socket that no browser opens
};

// What to answer instead of the page; nothing when the request may be answered. A Host that is none of this
// machine's loopback names is refused: that is what stands against DNS rebinding, a page of the attacker's
// whose name suddenly means 127.0.0.1.
std::optional<HttpResponse> Refusal(const HttpHead& head, HostRule rule = HostRule::kLoopback);

// Does the request show one of these tokens: "Bearer TOKEN", or, for browsers, "Basic" with any name and the token as
// its password? Takes the same time for each wrong token.
bool ShowsToken(const HttpHead& head, const std::vector<std::string>& tokens);

// "localhost", "127.x.x.x" or "[::1]", with or without a port: names that no DNS server can give to another.
bool IsLoopbackHost(absl::string_view host);

struct HttpHeader {
  const char* name;
  const char* value;
};

// The headers of every answer. They tell the browser not to frame it, not to store it, not to guess another
// type, and to load nothing from elsewhere.
absl::Span<const HttpHeader> StrictHeaders();

}  // namespace hedgerow::operate
