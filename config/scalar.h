// SPDX-License-Identifier: Apache-2.0
//
// The text forms of quantities: durations ("10ms"), percentages ("5%"), sizes ("64KiB") and
// whole numbers, read strictly and exactly, and written back in the shortest
// exact form. Used for configuration values and for what the CLI prints.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace hedgerow::config {

// "250us", "1.5ms", "2s", "10min", "1h"; units ns, us, ms, s, min, h. Nothing for any other text,
// for fractions of a nanosecond and for more than 2^62 ns.
std::optional<int64_t> ParseDurationNs(absl::string_view text);

// "5%" or "0.25%" in parts per million; nothing below a millionth.
std::optional<int64_t> ParsePercentPpm(absl::string_view text);

// "4096", "64KiB"; units KiB, MiB, GiB. Whole numbers only, below 2^63.
std::optional<int64_t> ParseBytes(absl::string_view text);

// Decimal digits only, at most 19 of them, within an int64_t; an optional leading minus.
std::optional<int64_t> ParseWhole(absl::string_view text);

// The exact inverse of ParseDurationNs: whole hours as "168h", else with the largest unit up to seconds that
// needs no more than three decimals: 1500000 -> "1.5ms".
std::string FormatDurationNs(int64_t ns);
std::string FormatPercentPpm(int64_t ppm);
// With the largest unit that needs no decimals: 65536 -> "64KiB".
std::string FormatBytes(int64_t bytes);

// Three significant digits for people: 10183204 -> "10.2ms".
std::string RoundedDurationNs(int64_t ns);

// "3d 4h", "12m 5s": two units, for ages.
std::string AgeText(int64_t ns);

}  // namespace hedgerow::config
