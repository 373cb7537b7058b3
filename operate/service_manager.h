// SPDX-License-Identifier: Apache-2.0
//
// What a program tells the service manager that started it (sd_notify(3)), without libsystemd.

#pragma once

#include "absl/strings/string_view.h"

namespace hedgerow::operate {

// "READY=1", "STOPPING=1", "STATUS=text": one datagram to the socket that NOTIFY_SOCKET names; nothing without one.
void NotifyServiceManager(absl::string_view state);

}  // namespace hedgerow::operate
