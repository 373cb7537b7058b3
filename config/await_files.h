// SPDX-License-Identifier: Apache-2.0
//
// Key files and certificates may come after the daemon that needs them: a file system that is mounted late, a secret
// that an agent or an operator writes. A daemon that a service manager has started waits for them (docs/adr/0058). The
// daemons of proxy and cluster call it in main().
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "config/diagnostics.h"

namespace hedgerow::config {

// Calls `load` until files that are not there are not all that is wrong: OK, or InvalidArgument with what is. Meanwhile
// it is tried again every second, and by SIGHUP at once; the log and the service manager's status line say so.
// Cancelled: by SIGTERM or SIGINT. `signals`: HearSignals() of operate/signals.h.
absl::Status AwaitFiles(const std::string& file_name, int signals, const std::function<void(Diagnostics&)>& load);

}  // namespace hedgerow::config
