// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/readiness.h"

#include <errno.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "operate/service_manager.h"

namespace hedgerow {
namespace {

constexpr absl::string_view kReady = "ready\n";
constexpr absl::string_view kFailed = "failed ";

}  // namespace

Readiness::~Readiness() {
  if (fd_ >= 0) close(fd_);
}

void Readiness::Send(const std::string& message) {
  if (fd_ < 0) return;
  absl::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t wrote = write(fd_, rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;  // the process that started us is gone
    rest.remove_prefix(static_cast<size_t>(wrote));
  }
  close(fd_);
  fd_ = -1;
}

void Readiness::Ready(absl::string_view problems) {
  Send(absl::StrCat(kReady, problems));
  operate::NotifyServiceManager("READY=1");
}

void Readiness::Failed(int exit_code, absl::string_view text) {
  Send(absl::StrCat(kFailed, exit_code, "\n", text));
  operate::NotifyServiceManager(absl::StrCat("STATUS=", text.substr(0, text.find('\n'))));
}

void Readiness::Stopping() { operate::NotifyServiceManager("STOPPING=1"); }

StartReport ReadStartReport(int fd) {
  std::string all;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    all.append(buffer, static_cast<size_t>(got));
  }
  StartReport report;
  absl::string_view rest = all;
  if (absl::ConsumePrefix(&rest, kReady)) {
    report.ready = true;
    report.exit_code = kExitOk;
    report.text = std::string(rest);
  } else if (absl::ConsumePrefix(&rest, kFailed)) {
    const size_t line_end = rest.find('\n');
    if (!absl::SimpleAtoi(rest.substr(0, line_end), &report.exit_code)) report.exit_code = kExitFailure;
    if (line_end != absl::string_view::npos) report.text = std::string(rest.substr(line_end + 1));
  } else {
    report.text = kDiedSilently;
  }
  return report;
}

}  // namespace hedgerow
