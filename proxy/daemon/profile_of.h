// SPDX-License-Identifier: Apache-2.0
//
// The profile of a configured service as the kernel programs read it: a built-in one, or the one that its `raw`
// block describes. Called by spec.cc with configurations that have passed every check.
#ifndef HEDGEROW_PROXY_DAEMON_PROFILE_OF_H_
#define HEDGEROW_PROXY_DAEMON_PROFILE_OF_H_

#include "bpf/abi/config_abi.h"
#include "proxy/api/config.pb.h"

namespace hedgerow {

hr_profile ProfileOf(const v1::Service& service);

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_PROFILE_OF_H_
