// SPDX-License-Identifier: Apache-2.0
//
// A node's kernel part as its process sees it: the state of rule R0, changed by control requests only, and the
// ring that carries what the kernel has accepted. Implemented by BpfKernel (the real one) and by the
// simulator's model, which runs the same decisions (bpf/node/raft/take.h) natively. KernelBridge is its only
// user, on the loop's thread.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bpf/node/raft/node_abi.h"

namespace hedgerow::offload {

// A record of the ring; its bytes are valid until it is released.
struct RingRecord {
  hr_node_record head{};        // without its datagram
  std::string_view datagram{};  // the peer datagram as it came; empty for a vote
  uint64_t end = 0;             // the ring's position after it: what Release takes
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  // Runs the control program: `request.result` and `request.shared` are its answer.
  virtual void Control(hr_node_control& request) = 0;

  // The ring's producer position: everything that is reserved by now lies below it (rule R1).
  virtual uint64_t ProducerPosition() = 0;

  // Appends to `records` those that follow the last one taken, up to `until`, in ring order, without those that
  // were discarded. A busy record (reserved, not yet submitted) ends it; with `wait` it is waited for, which
  // takes as long as one run of a kernel program. Returns the position reached.
  virtual uint64_t Take(uint64_t until, bool wait, std::vector<RingRecord>& records) = 0;

  // The kernel may reuse everything below `position` (rule R2). Never less than before.
  virtual void Release(uint64_t position) = 0;

  // While the process says that it is awake it is not woken for what it can see in the state; Moved() changes
  // with it. A process that sleeps says so first, and then checks whether something has moved since its last
  // Control.
  virtual void SetAwake(bool awake) = 0;
  virtual uint64_t Moved() = 0;

  // What this process has sent as leader: the last entry, and the last heartbeat round. An answer to more is none.
  virtual void SetSent(uint64_t index, uint64_t round) = 0;
};

}  // namespace hedgerow::offload
