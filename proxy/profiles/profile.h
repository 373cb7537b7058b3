// SPDX-License-Identifier: Apache-2.0
//
// From a profile in the words of the configuration to the bytes that the kernel programs compare
// (bpf/abi/config_abi.h). docs/profile-language.md explains the words; the *.yaml beside this file are the built-in
// profiles. Called by the daemon's spec.cc, with services that have passed every check, and by tests
// (profile_test.h).
#pragma once

#include "bpf/abi/config_abi.h"
#include "proxy/api/config.pb.h"

namespace hedgerow {

// The service's effective profile, with those named operations that its `duplicate` lists.
hr_profile ProfileOf(const v1::Service& service);

}  // namespace hedgerow
