// SPDX-License-Identifier: Apache-2.0
//
// Reading heads and writing answers; see the header. RFC 9112 for the syntax.

#include "operate/http_message.h"

#include <arpa/inet.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace hedgerow::operate {
namespace {

constexpr absl::string_view kEnd = "\r\n\r\n";

// Scripts, styles and pictures are files of ours, and nothing else is loaded: text that slipped into the page as
// markup could still neither run nor call home.
constexpr absl::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

absl::string_view Words(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
  }
  return "Error";
}

ParsedHead Refuse(int status, absl::string_view why) {
  ParsedHead parsed;
  parsed.state = ParsedHead::State::kRefused;
  parsed.refusal.status = status;
  parsed.refusal.body = absl::StrCat(why, "\n");
  return parsed;
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("!#$%&'*+-.^_`|~", c);
  });
}

bool IsTarget(absl::string_view text) {
  return absl::StartsWith(text, "/") &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

struct Fields {
  std::vector<std::string> hosts;
  bool body = false;
  bool wrong = false;
};

Fields ReadFields(const std::vector<absl::string_view>& lines) {
  Fields fields;
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = lines[i].find(':');
    // Also a line that goes on from the one before it (obsolete folding): its name is no token.
    if (colon == absl::string_view::npos || !IsToken(lines[i].substr(0, colon))) {
      fields.wrong = true;
      return fields;
    }
    const std::string name = absl::AsciiStrToLower(lines[i].substr(0, colon));
    const absl::string_view value = absl::StripAsciiWhitespace(lines[i].substr(colon + 1));
    if (name == "host") fields.hosts.emplace_back(value);
    if (name == "transfer-encoding" || (name == "content-length" && value != "0")) fields.body = true;
  }
  return fields;
}

}  // namespace

absl::string_view HttpRequest::Parameter(absl::string_view name) const {
  for (absl::string_view part : absl::StrSplit(query, '&')) {
    if (absl::ConsumePrefix(&part, name) && absl::ConsumePrefix(&part, "=")) return part;
  }
  return "";
}

bool IsLoopbackHost(absl::string_view host) {
  std::string name;
  if (absl::StartsWith(host, "[")) {
    const size_t end = host.find(']');
    if (end == absl::string_view::npos) return false;
    name = std::string(host.substr(1, end - 1));
    host.remove_prefix(end + 1);
    in6_addr address{};
    if (inet_pton(AF_INET6, name.c_str(), &address) != 1 || !IN6_IS_ADDR_LOOPBACK(&address)) return false;
  } else {
    const size_t end = std::min(host.find(':'), host.size());
    name = absl::AsciiStrToLower(host.substr(0, end));
    host.remove_prefix(end);
    in_addr address{};
    const bool ipv4 = inet_pton(AF_INET, name.c_str(), &address) == 1;
    if (name != "localhost" && !(ipv4 && (ntohl(address.s_addr) >> 24) == 127)) return false;
  }
  if (host.empty()) return true;
  uint32_t port = 0;
  // Any port: a tunnel may listen on another one.
  return absl::ConsumePrefix(&host, ":") && absl::SimpleAtoi(host, &port) && port <= 65'535;
}

ParsedHead ParseHead(absl::string_view bytes) {
  const size_t end = bytes.find(kEnd);
  if (end == absl::string_view::npos || end > kMaxHeadBytes) {
    if (bytes.size() > kMaxHeadBytes) return Refuse(431, "the head of the request is too long");
    return ParsedHead();
  }
  const std::vector<absl::string_view> lines = absl::StrSplit(bytes.substr(0, end), "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !IsToken(words[0]) || !absl::StartsWith(words[2], "HTTP/")) {
    return Refuse(400, "not a request of HTTP");
  }
  const bool old = words[2] == "HTTP/1.0";
  if (!old && words[2] != "HTTP/1.1") return Refuse(505, "only HTTP/1.0 and 1.1 are spoken here");
  if (words[0] != "GET" && words[0] != "HEAD") return Refuse(405, "only GET and HEAD are answered");
  if (!IsTarget(words[1])) return Refuse(400, "not a path");
  const Fields fields = ReadFields(lines);
  if (fields.wrong) return Refuse(400, "not a header of HTTP");
  if (fields.body) return Refuse(413, "a request with a body is not read");
  // HTTP/1.0 has no Host; a browser, which is what can be misled, always sends one.
  if (fields.hosts.size() > 1 || (fields.hosts.empty() && !old)) return Refuse(400, "one Host is expected");
  if (!fields.hosts.empty() && !IsLoopbackHost(fields.hosts[0])) {
    return Refuse(421, "answered for localhost, 127.0.0.1 and [::1] only, not under another name");
  }
  ParsedHead parsed;
  parsed.state = ParsedHead::State::kComplete;
  parsed.request.method = std::string(words[0]);
  const size_t mark = std::min(words[1].find('?'), words[1].size());
  parsed.request.path = std::string(words[1].substr(0, mark));
  if (mark < words[1].size()) parsed.request.query = std::string(words[1].substr(mark + 1));
  return parsed;
}

std::string FormatResponse(const HttpResponse& response, bool head_only) {
  std::string out = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", Words(response.status), "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body.size(), "\r\nConnection: close\r\nCache-Control: no-store",
      "\r\nContent-Security-Policy: ", kPolicy,
      "\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer"
      "\r\nCross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin",
      response.status == 405 ? "\r\nAllow: GET, HEAD" : "", kEnd);
  if (!head_only) out += response.body;
  return out;
}

}  // namespace hedgerow::operate
