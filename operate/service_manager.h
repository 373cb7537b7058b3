// SPDX-License-Identifier: Apache-2.0
//
// What a program tells the service manager that started it (sd_notify(3)), without libsystemd.

#pragma once

#include "absl/strings/string_view.h"

namespace hedgerow::operate {

// "READY=1", "STOPPING=1", "STATUS=text": one datagram to the socket that NOTIFY_SOCKET names; nothing without one.
// `descriptor`: goes with it, for the manager's store (FDSTORE=1).
void NotifyServiceManager(absl::string_view state, int descriptor = -1);

}  // namespace hedgerow::operate
