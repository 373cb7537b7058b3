// SPDX-License-Identifier: Apache-2.0
//
// A VIP that is this host's own address (`in_place: true`, docs/adr/0063): the kernel delivers what comes to it before
// any route, so the service gets a VIP that no host has, and the address stands in `also_at`. Called wherever a
// configuration is read to be served, planned or judged on this machine.
#pragma once

#include "proxy/api/config.pb.h"

namespace hedgerow {

void MoveOwnAddresses(v1::Config& config);

}  // namespace hedgerow
