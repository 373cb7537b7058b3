// SPDX-License-Identifier: Apache-2.0
//
// How a starting daemon tells the process that started it that it is ready, or why it is not: `hedgerow up` passes a
// pipe, systemd a notification socket. One message is sent, once.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "operate/exit_code.h"

namespace hedgerow {

using enum operate::ExitCode;

struct StartReport {
  bool ready = false;
  int exit_code = kExitFailure;
  std::string text;  // the error; when ready, the problems with which it serves
};

inline constexpr char kDiedSilently[] = "hedgerowd died while it was starting";

class Readiness {
 public:
  // `fd` of a pipe's writing end, or -1. Closed by the report.
  explicit Readiness(int fd) : fd_(fd) {}
  Readiness(const Readiness&) = delete;
  ~Readiness();

  void Ready(absl::string_view problems = "");
  void Failed(int exit_code, absl::string_view text);
  // For systemd only: the end has begun.
  static void Stopping();

 private:
  void Send(const std::string& message);
  int fd_;
};

// Reads the pipe's other end to its end. A daemon that died without a word is a failure too.
StartReport ReadStartReport(int fd);

}  // namespace hedgerow
