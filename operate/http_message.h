// SPDX-License-Identifier: Apache-2.0
//
// The little of HTTP/1.1 that the pages of our programs need: the head of a GET in, an answer with strict headers
// out. No bodies are read, no connection is kept, so there is little to get wrong. Pure; operate/http_server.cc
// calls it with what came over a socket, the fuzzer with anything.

#ifndef HEDGEROW_OPERATE_HTTP_MESSAGE_H_
#define HEDGEROW_OPERATE_HTTP_MESSAGE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace hedgerow::operate {

// A browser's head has 500 to 1,000 bytes; cookies of other servers on localhost may add to it.
inline constexpr size_t kMaxHeadBytes = 16'384;

struct HttpRequest {
  std::string method;  // GET or HEAD
  std::string path;    // begins with '/', as sent: nothing is decoded
  std::string query;   // what follows '?'

  // "5" of `name` in "name=5&other=6"; empty when it is not there.
  absl::string_view Parameter(absl::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct ParsedHead {
  enum class State { kIncomplete, kComplete, kRefused };
  State state = State::kIncomplete;
  HttpRequest request;   // with kComplete
  HttpResponse refusal;  // with kRefused: what to answer
};

// What a connection has sent so far. Refused are: what is no HTTP/1.0 or 1.1 head, methods other than GET and
// HEAD, a body, a head of more than kMaxHeadBytes, and a Host that is none of this machine's loopback names. The
// last is what stands against DNS rebinding: a page of the attacker's whose name suddenly means 127.0.0.1.
ParsedHead ParseHead(absl::string_view bytes);

// "localhost", "127.x.x.x" or "[::1]", with or without a port: names that no DNS server can give to another.
bool IsLoopbackHost(absl::string_view host);

// The whole answer. Its headers let the page load what is ours and nothing else, and nobody frame it, keep it or
// take it for another type.
std::string FormatResponse(const HttpResponse& response, bool head_only);

}  // namespace hedgerow::operate

#endif  // HEDGEROW_OPERATE_HTTP_MESSAGE_H_
