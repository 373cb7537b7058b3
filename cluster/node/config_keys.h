// SPDX-License-Identifier: Apache-2.0
//
// The table of a node's configuration keys: what each takes, in words and in
// code, and where its value goes. Called by config.cc.

#pragma once

#include <string>
#include <vector>

#include "cluster/node/config.h"
#include "cluster/node/config_reader.h"

namespace hedgerow::node {

// What cluster_key_file and announce_key_file say; empty: not there.
struct KeyFiles {
  std::string cluster_key{};
  std::string announce_key{};
};

// Every value goes straight to its place in `config` or `files`, which must not move while the keys are used.
std::vector<ConfigKey> KeysFor(NodeConfig& config, KeyFiles& files);

}  // namespace hedgerow::node
