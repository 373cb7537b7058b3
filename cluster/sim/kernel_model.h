// SPDX-License-Identifier: Apache-2.0
//
// A simulated host's kernel part. Peers' datagrams come here first; some are handled in several steps with the
// process, its death, or other datagrams in between, as if on several CPUs. It outlives its process until it is
// detached, and forgets everything when the host loses its power.

#pragma once

#include <cstdint>

#include "cluster/offload/testing/native_kernel.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class KernelModel {
 public:
  KernelModel(World& world, Server& server);

  offload::NativeKernel& kernel() { return kernel_; }
  bool attached() const { return attached_; }

  void Arrive(raft::Message message);
  void Attach();
  // Its process has died: after a while the programs are gone, too.
  void ProcessDied();
  void PowerCut();
  // While the process is at work, other CPUs are.
  void OtherCpus();

 private:
  void Continue(uint64_t run);
  void Decided(const offload::NativeKernel::Done& done);
  void Ended(offload::NativeKernel::Done done);

  World& world_;
  Server& server_;
  offload::NativeKernel kernel_;
  bool attached_ = false;
  uint64_t attachments_ = 0;
};

}  // namespace hedgerow::sim
