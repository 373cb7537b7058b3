// SPDX-License-Identifier: Apache-2.0
//
// Where a program's pages are and which users may ask there, as configurations and status reports have it;
// http_server.h serves them.
#pragma once

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace hedgerow::operate {

// Files that are changed are read again within HttpServer::kRenewal; what cannot be used leaves the former in use.
struct HttpAccess {
  std::string group{};        // of "unix:/PATH": its members may ask
  std::string certificate{};  // TLS, in files of PEM as tls_files.h reads them; empty: without TLS
  std::string key{};
  std::string token{};  // a file with one token, or two while it is changed, as key_file.h reads a ring; empty: none is
                        // asked for

  bool encrypted() const { return !certificate.empty(); }
};

// "/PATH" of "unix:/PATH"; empty for an address.
inline std::string UnixPathOf(absl::string_view listen) {
  return absl::ConsumePrefix(&listen, "unix:") ? std::string(listen) : "";
}

// Where a page of HttpServer::address() is: "http://127.0.0.1:9464/metrics", "https://...", "/metrics at unix:/PATH".
inline std::string PageText(const std::string& address, const std::string& path) {
  if (!UnixPathOf(address).empty()) return absl::StrCat(path, " at ", address);
  return absl::StrCat(absl::StartsWith(address, "https://") ? "" : "http://", address, path);
}

}  // namespace hedgerow::operate
