// SPDX-License-Identifier: Apache-2.0
//
// What differs between two configurations, key by key, and what of it can be
// applied to a proxy that runs. Entries of lists are told apart by their names,
// so that an entry that only moved is no difference. Used by `reload`, and by a
// start that finds a kernel part under another configuration.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "proxy/api/config.pb.h"

namespace hedgerow::config {

struct Change {
  std::string kind;    // "added", "removed" or "changed"
  std::string path;    // services[dns].backends[a].port
  std::string from{};  // as it would be written in YAML; empty for what was not there. Secrets are hidden.
  std::string to{};
  std::string obstacle{};  // why it cannot be applied while the proxy runs; empty: it can
};

// A key that `from` does not know, since it was written by an older version, is at its default there.
// `awaited`: the ports on which the programs that run await announcements, beside those of `from`.
std::vector<Change> Diff(const v1::Config& from, const v1::Config& to, const std::set<uint32_t>& awaited = {});

// The keys of the daemon alone, which the kernel part does not know: its sockets, metrics and page. A new daemon serves
// under its own, whatever it takes over.
void CopyDaemonsOwn(const v1::Config& from, v1::Config& to);

// Of a service's keys those that say which service it is (RELOAD_IDENTITY).
v1::Service IdentityOf(const v1::Service& service);

// Those that cannot be applied, one line each with the reason.
std::vector<std::string> Obstacles(const std::vector<Change>& changes);

}  // namespace hedgerow::config
