// SPDX-License-Identifier: Apache-2.0
//
// What a sound or unsound file may mean otherwise than it is: the words of others (dnsdist, nginx, HAProxy, keepalived,
// Envoy, CoreDNS) and what stands here in their place, which docs/coming-from.md has beside whole files; and keys that
// have no effect. For errors and notes. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/locations.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::config {

// Of an unknown key with `path` empty, else of the value of the key at that path. Empty: none of their words.
std::string ForeignWordAdvice(absl::string_view path, absl::string_view word);

// A sentence for each service with keys that were written and have no effect.
std::vector<std::string> KeysWithoutEffect(const v1::Config& config, const Locations& locations);

}  // namespace hedgerow::config
