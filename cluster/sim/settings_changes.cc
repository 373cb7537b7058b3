// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/settings_changes.h"

#include <vector>

#include "cluster/sim/server.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

SettingsChanges::SettingsChanges(World& world) : world_(world), random_(world.plan.settings.changes_seed) {}

void SettingsChanges::Start() {
  if (world_.plan.settings.mean_interval_ns > 0) Next();
}

void SettingsChanges::Next() {
  world_.time.After(random_.Below(2 * world_.plan.settings.mean_interval_ns), [this] {
    if (calm_) return;
    Act();
    Next();
  });
}

// Some of the settings, to values that any node's file could have had.
void SettingsChanges::Act() {
  std::vector<Server*> leaders;
  for (const auto& server : world_.servers) {
    if (server->up() && !server->paused() && server->raft().role() == raft::Role::kLeader)
      leaders.push_back(server.get());
  }
  if (leaders.empty()) return;
  kv::SettingValues values;
  for (const kv::SettingValue& value : kv::ValuesOf(DrawSettings(random_))) {
    if (random_.Chance(400'000)) values.push_back(value);
  }
  ++world_.settings_changes;
  leaders[random_.Below(leaders.size())]->ChangeSettings(std::move(values));
}

}  // namespace hedgerow::sim
