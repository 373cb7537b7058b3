// SPDX-License-Identifier: Apache-2.0
//
// What a veth drops in silence: frames sent back by XDP_TX while its other end has no XDP program (and no NAPI
// of its own), or is down. Only the driver's own statistics tell. Used by BpfKernel.

#pragma once

#include <cstdint>
#include <string>

namespace hedgerow::offload {

// Since the interface was made, over all its queues; 0 where the driver does not count them.
uint64_t CountLostAnswers(const std::string& interface);

}  // namespace hedgerow::offload
