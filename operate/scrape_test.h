// SPDX-License-Identifier: Apache-2.0
//
// A scrape as Prometheus makes it, for the tests of everything that serves metrics.

#pragma once

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hedgerow::operate {

// A plain HTTP/1.0 GET at "127.0.0.1:9464" or "[::1]:9464"; the whole answer, or "" when no server listens.
inline std::string HttpGet(const std::string& listen, const std::string& path) {
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo* found = nullptr;
  EXPECT_EQ(getaddrinfo(host.c_str(), listen.substr(colon + 1).c_str(), nullptr, &found), 0) << listen;
  if (found == nullptr) return "";
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[65536];
    for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  freeaddrinfo(found);
  return answer;
}

// "name{labels}" -> value. A line that is neither comment nor sample fails the test.
inline std::map<std::string, double> ParsePage(const std::string& answer) {
  std::map<std::string, double> samples;
  const size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return samples;
  for (const absl::string_view line : absl::StrSplit(answer.substr(body + 4), '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "# HELP ") || absl::StartsWith(line, "# TYPE ")) continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    const bool parsed = space != absl::string_view::npos && absl::SimpleAtod(line.substr(space + 1), &value);
    EXPECT_TRUE(parsed) << line;
    if (!parsed) continue;
    EXPECT_TRUE(samples.emplace(std::string(line.substr(0, space)), value).second) << "twice: " << line;
  }
  return samples;
}

}  // namespace hedgerow::operate
