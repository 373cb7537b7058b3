// SPDX-License-Identifier: Apache-2.0
//
// YAML to protobuf message, by one generic walk over the schema: unknown
// and duplicate keys, wrong types, ranges and formats are found here. What
// spans several values (names, ambiguity) is for the checks of proxy/config and cluster/node.

#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/diagnostics.h"
#include "config/locations.h"

namespace hedgerow::config {

// What an error says beside what is expected: of an unknown key with `path` empty, else of the value of the key at that
// path. Empty: nothing.
using Advice = std::function<std::string(absl::string_view path, absl::string_view word)>;

// Fills `message` from the text, absent keys with their defaults. A value with
// an error is left empty or zero and recorded in `errors`. `locations` has the keys
// that were written. False where the text is no YAML.
bool Decode(absl::string_view text, google::protobuf::Message& message, Locations& locations, Diagnostics& errors,
            const Advice& advice = {});

}  // namespace hedgerow::config
