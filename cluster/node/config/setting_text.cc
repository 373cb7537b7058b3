// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/config/setting_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "config/diagnostics.h"
#include "config/scalar.h"
#include "config/suggest.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kMinute_ns = 60'000'000'000;
constexpr uint64_t kHour_ns = 60 * kMinute_ns;

uint64_t ScaleOf(const kv::SettingInfo& info) {
  return info.unit == kv::SettingUnit::kMebibytes ? uint64_t{1} << 20 : 1;
}

}  // namespace

std::string RangeOf(const kv::SettingInfo& info) {
  if (info.unit == kv::SettingUnit::kDuration) {
    const absl::string_view range = info.range;
    return absl::StrReplaceAll(range.substr(0, range.find(',')), {{" and ", " to "}});
  }
  return absl::StrCat(info.min / ScaleOf(info), " to ", info.max / ScaleOf(info));
}

std::string ExpectedOf(const kv::SettingInfo& info) {
  if (info.unit == kv::SettingUnit::kDuration) return absl::StrCat("a duration between ", info.range);
  return absl::StrCat("a whole number between ", info.min / ScaleOf(info), " and ", info.max / ScaleOf(info));
}

std::optional<uint64_t> ParseSetting(const kv::SettingInfo& info, absl::string_view text) {
  uint64_t value = 0;
  if (info.unit == kv::SettingUnit::kDuration) {
    const std::optional<int64_t> ns = config::ParseDurationNs(text);
    if (!ns.has_value() || *ns < 0) return std::nullopt;
    value = static_cast<uint64_t>(*ns);
  } else {
    // SimpleAtoi alone would take a sign and white space.
    const bool digits = std::all_of(text.begin(), text.end(),
                                    [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
    if (!digits || !absl::SimpleAtoi(text, &value)) return std::nullopt;
    if (__builtin_mul_overflow(value, ScaleOf(info), &value)) return std::nullopt;
  }
  if (value < info.min || value > info.max) return std::nullopt;
  return value;
}

absl::StatusOr<kv::SettingValue> ParseNamedSetting(absl::string_view name, absl::string_view text) {
  const kv::SettingInfo* const info = kv::FindSetting(std::string(name));
  if (info == nullptr) {
    std::vector<std::string> names;
    for (const kv::SettingInfo& known : kv::AllSettings()) names.emplace_back(known.name);
    return config::NoSuch("setting", name, names);
  }
  const std::optional<uint64_t> value = ParseSetting(*info, text);
  if (!value.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": got ", config::Quote(text), ", expected ", ExpectedOf(*info)));
  }
  return kv::SettingValue{.setting = info->setting, .value = *value};
}

std::string FormatSetting(const kv::SettingInfo& info, uint64_t value) {
  if (info.unit != kv::SettingUnit::kDuration) {
    // A state may hold what no administrator may set; see SettingInfo.
    const uint64_t scale = ScaleOf(info);
    return value % scale == 0 ? absl::StrCat(value / scale) : absl::StrCat(value, " bytes");
  }
  if (value != 0 && value % kHour_ns == 0) return absl::StrCat(value / kHour_ns, "h");
  if (value != 0 && value % kMinute_ns == 0) return absl::StrCat(value / kMinute_ns, "min");
  return config::FormatDurationNs(static_cast<int64_t>(value));
}

}  // namespace hedgerow::node
