// SPDX-License-Identifier: Apache-2.0
#include "config/scalar.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace hedgerow::config {
namespace {

struct UnitScale {
  absl::string_view suffix;
  int64_t scale;
};
constexpr int64_t kHour_ns = 3'600'000'000'000;
// "s" last, because it also ends the other three.
constexpr UnitScale kDurationUnits[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
constexpr UnitScale kLongUnits[] = {{"min", 60'000'000'000}, {"h", kHour_ns}};
constexpr UnitScale kByteUnits[] = {{"GiB", int64_t{1} << 30}, {"MiB", int64_t{1} << 20}, {"KiB", int64_t{1} << 10}};

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

// DIGITS[.DIGITS] times `scale`, exactly or not at all.
std::optional<int64_t> ParseScaled(absl::string_view text, int64_t scale) {
  const size_t dot = text.find('.');
  const absl::string_view whole = text.substr(0, dot);
  absl::string_view fraction;
  if (dot != absl::string_view::npos) {
    fraction = text.substr(dot + 1);
    if (!AllDigits(fraction)) return std::nullopt;
  }
  if (!AllDigits(whole) || whole.size() > 18 || fraction.size() > 9) {
    return std::nullopt;
  }
  int64_t value = 0;
  int64_t sum = 0;
  if (!absl::SimpleAtoi(whole, &value) || __builtin_mul_overflow(value, scale, &sum)) {
    return std::nullopt;
  }
  int64_t place = scale;
  for (const char digit : fraction) {
    if (digit != '0' && place % 10 != 0) return std::nullopt;
    place /= 10;
    if (__builtin_add_overflow(sum, place * (digit - '0'), &sum)) {
      return std::nullopt;
    }
  }
  constexpr int64_t kLargest = int64_t{1} << 62;
  if (sum > kLargest) return std::nullopt;
  return sum;
}

// value / scale with at most `decimals` digits, trailing zeros removed.
std::string Decimal(int64_t value, int64_t scale) {
  std::string text = absl::StrCat(value / scale);
  int64_t rest = value % scale;
  if (rest == 0) return text;
  absl::StrAppend(&text, ".");
  for (int64_t place = scale / 10; rest != 0; place /= 10) {
    absl::StrAppend(&text, rest / place);
    rest %= place;
  }
  return text;
}

}  // namespace

std::optional<int64_t> ParseDurationNs(absl::string_view text) {
  for (const UnitScale& unit : kDurationUnits) {
    if (absl::ConsumeSuffix(&text, unit.suffix)) return ParseScaled(text, unit.scale);
  }
  for (const UnitScale& unit : kLongUnits) {
    if (absl::ConsumeSuffix(&text, unit.suffix)) return ParseScaled(text, unit.scale);
  }
  return std::nullopt;
}

std::optional<int64_t> ParsePercentPpm(absl::string_view text) {
  if (!absl::ConsumeSuffix(&text, "%")) return std::nullopt;
  return ParseScaled(text, 10'000);
}

std::optional<int64_t> ParseBytes(absl::string_view text) {
  int64_t scale = 1;
  for (const UnitScale& unit : kByteUnits) {
    if (!absl::ConsumeSuffix(&text, unit.suffix)) continue;
    scale = unit.scale;
    break;
  }
  int64_t count = 0;
  int64_t bytes = 0;
  if (!AllDigits(text) || !absl::SimpleAtoi(text, &count) || __builtin_mul_overflow(count, scale, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::optional<int64_t> ParseWhole(absl::string_view text) {
  absl::string_view digits = text;
  absl::ConsumePrefix(&digits, "-");
  int64_t value = 0;
  if (!AllDigits(digits) || digits.size() > 19 || !absl::SimpleAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

std::string FormatDurationNs(int64_t ns) {
  if (ns > 0 && ns % kHour_ns == 0) return absl::StrCat(ns / kHour_ns, "h");
  for (int i = 3; i > 0; --i) {
    const UnitScale& unit = kDurationUnits[i];
    if (ns >= unit.scale && ns % (unit.scale / 1000) == 0) {
      return absl::StrCat(Decimal(ns, unit.scale), unit.suffix);
    }
  }
  return absl::StrCat(ns, "ns");
}

std::string FormatPercentPpm(int64_t ppm) { return absl::StrCat(Decimal(ppm, 10'000), "%"); }

std::string FormatBytes(int64_t bytes) {
  for (const UnitScale& unit : kByteUnits) {
    if (bytes > 0 && bytes % unit.scale == 0) return absl::StrCat(bytes / unit.scale, unit.suffix);
  }
  return absl::StrCat(bytes);
}

std::string RoundedDurationNs(int64_t ns) {
  if (ns == 0) return "0";
  for (int i = 3; i >= 0; --i) {
    const UnitScale& unit = kDurationUnits[i];
    const double value = static_cast<double>(ns) / static_cast<double>(unit.scale);
    // 0.9995 and more would print as 1.00 of this unit.
    if (std::abs(value) < 0.9995 && i > 0) continue;
    const int decimals = std::abs(value) < 9.995 && i > 0 ? 2 : std::abs(value) < 99.95 && i > 0 ? 1 : 0;
    return absl::StrCat(absl::StrFormat("%.*f", decimals, value), unit.suffix);
  }
  return absl::StrCat(ns, "ns");
}

std::string AgeText(int64_t ns) {
  const int64_t seconds = ns / 1'000'000'000;
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (hours >= 24) return absl::StrCat(hours / 24, "d ", hours % 24, "h");
  if (hours > 0) return absl::StrCat(hours, "h ", minutes % 60, "m");
  if (minutes > 0) return absl::StrCat(minutes, "m ", seconds % 60, "s");
  return absl::StrCat(seconds, "s");
}

}  // namespace hedgerow::config
