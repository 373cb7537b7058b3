// SPDX-License-Identifier: Apache-2.0
//
// A simulated administrator that changes the cluster's settings at any time, whatever the faults, at any node
// that believes that it leads. What the nodes' files say differs, too (SettingsPlan).

#pragma once

#include "cluster/kv/settings.h"
#include "cluster/sim/plan.h"

namespace hedgerow::sim {

struct World;

class SettingsChanges {
 public:
  explicit SettingsChanges(World& world);

  void Start();
  void Calm() { calm_ = true; }

 private:
  void Next();
  void Act();

  World& world_;
  Random random_;  // its own, so that runs without changes go on as they did
  bool calm_ = false;
};

}  // namespace hedgerow::sim
