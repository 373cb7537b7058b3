// SPDX-License-Identifier: Apache-2.0
//
// The cluster's settings (cluster/kv/settings.h) as an operator writes and reads them: in a configuration file, at
// the command line and in the status. Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/kv/settings.h"

namespace hedgerow::node {

// "10s to 168h", "1 to 1000000".
std::string RangeOf(const kv::SettingInfo& info);
// What a value must be, in a configuration file's words.
std::string ExpectedOf(const kv::SettingInfo& info);

// Nothing: no value, or one out of the range.
std::optional<uint64_t> ParseSetting(const kv::SettingInfo& info, absl::string_view text);
// "sessions.timeout", "1h". NotFound or InvalidArgument says what was expected.
absl::StatusOr<kv::SettingValue> ParseNamedSetting(absl::string_view name, absl::string_view text);
// The shortest text that ParseSetting reads as this value.
std::string FormatSetting(const kv::SettingInfo& info, uint64_t value);

}  // namespace hedgerow::node
