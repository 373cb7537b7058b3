// SPDX-License-Identifier: Apache-2.0
//
// What a veth drops in silence: frames sent back by XDP_TX while its other end has no XDP program (and no NAPI
// of its own), or is down. Only the driver's own statistics tell. Used by BpfKernel.

#ifndef HEDGEROW_CLUSTER_OFFLOAD_LOST_ANSWERS_H_
#define HEDGEROW_CLUSTER_OFFLOAD_LOST_ANSWERS_H_

#include <cstdint>
#include <string>

namespace hedgerow::offload {

// Since the interface was made, over all its queues; 0 where the driver does not count them.
uint64_t CountLostAnswers(const std::string& interface);

}  // namespace hedgerow::offload

#endif  // HEDGEROW_CLUSTER_OFFLOAD_LOST_ANSWERS_H_
