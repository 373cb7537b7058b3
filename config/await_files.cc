// SPDX-License-Identifier: Apache-2.0
#include "config/await_files.h"

#include <poll.h>
#include <signal.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operate/log.h"
#include "operate/service_manager.h"
#include "operate/signals.h"

namespace hedgerow::config {

absl::Status AwaitFiles(const std::string& file_name, int signals, const std::function<void(Diagnostics&)>& load) {
  constexpr int kSettle_s = 60;
  std::string reported;
  for (int settling_s = kSettle_s;;) {
    Diagnostics errors(file_name);
    load(errors);
    // What has just come may not be whole yet, nor readable, and a certificate is there before its key.
    if (errors.only_absent_files())
      settling_s = 0;
    else if (!errors.only_of_files() || settling_s++ >= kSettle_s)
      return errors.ToStatus();
    // Waiting is what it is started for: without it systemd would end it after TimeoutStartSec=.
    operate::NotifyServiceManager("READY=1\nWATCHDOG=1");
    if (const std::string missing = absl::StrJoin(errors.Lines(), "; "); missing != reported) {
      reported = missing;
      LogWarning("waits for files, and looks again every second: ", missing);
      operate::NotifyServiceManager(absl::StrCat("STATUS=waits for files: ", missing));
    }
    pollfd signal{.fd = signals, .events = POLLIN, .revents = 0};
    if (poll(&signal, 1, 1000) <= 0) continue;
    const std::optional<int> number = operate::NextSignal(signals);
    if (number.has_value() && *number != SIGHUP) return absl::CancelledError("stopped while it waited for files");
  }
}

}  // namespace hedgerow::config
