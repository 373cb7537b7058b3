// SPDX-License-Identifier: Apache-2.0
#include "operate/http_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hedgerow::operate {
namespace {

HttpResponse Refuse(int status, absl::string_view why) { return {.status = status, .body = absl::StrCat(why, "\n")}; }

bool IsSame(absl::string_view left, absl::string_view right) {
  if (left.size() != right.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < left.size(); ++i) differs = static_cast<unsigned char>(differs | (left[i] ^ right[i]));
  return differs == 0;
}

// Empty where there is none.
std::string TokenIn(absl::string_view authorization) {
  const size_t space = std::min(authorization.find(' '), authorization.size());
  const std::string scheme = absl::AsciiStrToLower(authorization.substr(0, space));
  const absl::string_view value = absl::StripAsciiWhitespace(authorization.substr(space));
  if (scheme == "bearer") return std::string(value);
  std::string pair;
  if (scheme != "basic" || !absl::Base64Unescape(value, &pair)) return "";
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

}  // namespace

bool ShowsToken(const HttpHead& head, const std::vector<std::string>& tokens) {
  if (head.authorizations.size() != 1) return false;
  const std::string shown = TokenIn(head.authorizations[0]);
  bool known = false;
  for (const std::string& token : tokens) known |= IsSame(shown, token);
  return known;
}

absl::string_view HttpRequest::Parameter(absl::string_view name) const {
  for (const auto& [key, value] : parameters) {
    if (key == name) return value;
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

std::optional<HttpResponse> Refusal(const HttpHead& head, HostRule rule) {
  if (head.method != "GET" && head.method != "HEAD") return Refuse(405, "only GET and HEAD are answered");
  if (head.has_body) return Refuse(413, "a request with a body is not read");
  // HTTP/1.0 has no Host; a browser, which is what can be misled, always sends one.
  if (head.hosts.size() > 1 || (head.hosts.empty() && head.version != "HTTP/1.0")) {
    return Refuse(400, "one Host is expected");
  }
  if (rule == HostRule::kLoopback && !head.hosts.empty() && !IsLoopbackHost(head.hosts[0])) {
    return Refuse(421, "answered for localhost, 127.0.0.1 and [::1] only, not under another name");
  }
  return std::nullopt;
}

absl::Span<const HttpHeader> StrictHeaders() {
  static constexpr HttpHeader kHeaders[] = {
      {"Cache-Control", "no-store"},
      // Scripts, styles and pictures are files of ours, and nothing else is loaded: text that slipped into the
      // page as markup could still neither run nor call home.
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
       "trusted-types 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
  };
  return kHeaders;
}

}  // namespace hedgerow::operate
