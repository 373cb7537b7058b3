// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes may be offered as a node's configuration. They are refused with at least one
// printable error, or what comes of them keeps the rules that the node relies on.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "cluster/node/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace node = hedgerow::node;
  hedgerow::config::Diagnostics errors("fuzz.yaml");
  const node::NodeConfig config =
      node::ParseNodeConfig(absl::string_view(reinterpret_cast<const char*>(data), size), errors);
  if (!errors.empty()) {
    for (const std::string& line : errors.Lines()) {
      for (const char c : line) {
        if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) __builtin_trap();
      }
    }
    return 0;
  }
  const bool sound = config.cluster_id != 0 && !config.members.empty() && config.members.size() <= node::kMembersMax &&
                     config.own().peer.port != 0 && config.serve.port == config.own().serve.port &&
                     config.election_floor_ns < config.election_cap_ns &&
                     (config.proxies.empty() || config.announce_keys.has_value());
  if (!sound) __builtin_trap();
  return 0;
}
