// SPDX-License-Identifier: Apache-2.0
//
// A simulated program that reaches every node and is no friend of the clients: it has learnt the ids of their sessions
// and the numbers of their writes, but no token. Under those it writes nothing, cancels, and says that it has all
// answers; and it opens sessions that it never writes in. Whatever it sends must change nothing for a client (its
// history), and tell it nothing.

#pragma once

#include "cluster/kv/request_router.h"
#include "cluster/sim/plan.h"

namespace hedgerow::sim {

struct World;

class Stranger {
 public:
  explicit Stranger(World& world);

  void Start();
  void Calm() { calm_ = true; }
  void ArriveAnswer(const kv::Answer& answer);

 private:
  void Next();
  void Act();
  kv::Command Open();
  kv::Command Forged();

  World& world_;
  Random random_;  // its own, so that runs without it go on as they did
  bool calm_ = false;
};

}  // namespace hedgerow::sim
