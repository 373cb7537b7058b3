// SPDX-License-Identifier: Apache-2.0
//
// A simulated administrator: changes the cluster's membership at any time, whatever the faults. Adds nodes as
// learners, promotes them, removes voters (the leader above all), learners and several in one step, replaces
// one by another, gives addresses; and asks for what must be refused. Nodes that are no members, or no more,
// run on all the while, with whatever they have in their logs.

#pragma once

#include <cstdint>
#include <vector>

#include "cluster/raft/outputs.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Membership {
 public:
  explicit Membership(World& world) : world_(world), plan_(world.plan.membership) {}

  void Start();
  void Calm() { calm_ = true; }
  void Answered(Server& server, const raft::MembershipAnswer& answer);
  // A node that a client may take for a member: it heard so some time ago, or never.
  Server& SomeNode();
  void ConfigurationSeen(const raft::Configuration& configuration) { seen_ = configuration; }

 private:
  void Next();
  void Act();
  std::vector<raft::MemberChange> Draw(const Server& leader);
  raft::NodeId One(const raft::Configuration& configuration, uint32_t slots);
  raft::NodeId OneToRemove(const Server& leader);

  World& world_;
  MembershipPlan plan_;
  raft::Configuration seen_;
  bool removes_leader_ = false;  // the change that was asked for last
  bool calm_ = false;
};

}  // namespace hedgerow::sim
