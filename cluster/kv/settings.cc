// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/settings.h"

#include <algorithm>
#include <array>

#include "cluster/raft/bytes.h"
#include "cluster/kv/request_router.h"
#include "cluster/raft/check.h"

namespace hedgerow::kv {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kWindowMin_ns = 3 * kSecond_ns;
// Of writes without a session: longer than the longest timeout of a client and of a proxy (a minute each, and copies of
// one request leave within it), what nodes may hold a copy for, and the wire. A nonce is never used again, so a longer
// window costs memory alone.
constexpr uint64_t kNonceWindowMin_ns = 70 * kSecond_ns;

// A copy that nodes still propose must be younger than every window that knows the request, by more than a
// packet can be under way (docs/SAFETY.md, "Exactly once").
static_assert(2 * RouterOptions{}.copy_age_max_ns <= kWindowMin_ns);
static_assert(RouterOptions{}.hold_max_ns <= RouterOptions{}.copy_age_max_ns);

constexpr std::array kSettings = {
    SettingInfo{.setting = Setting::kSessionTimeout,
                .name = "sessions.timeout",
                .unit = SettingUnit::kDuration,
                .min = 10 * kSecond_ns,
                .max = 168 * 3600 * kSecond_ns,
                .range = "10s and 168h, such as 1h",
                .meaning = "a session that has written nothing for so long is forgotten"},
    SettingInfo{
        .setting = Setting::kSessionsMax,
        .name = "sessions.max",
        .unit = SettingUnit::kCount,
        .min = 1,
        .max = 1'000'000,
        .range = "",
        .meaning = "sessions at a time; another one ends the longest idle of those that never wrote, or is refused"},
    SettingInfo{.setting = Setting::kSessionAnswersMax,
                .name = "sessions.answers_max",
                .unit = SettingUnit::kCount,
                .min = 64,
                .max = 65'536,
                .range = "",
                .meaning = "writes that a session may run ahead of its oldest unanswered one; more are refused"},
    SettingInfo{.setting = Setting::kWindow,
                .name = "requests.window",
                .unit = SettingUnit::kDuration,
                .min = kNonceWindowMin_ns,
                .max = 600 * kSecond_ns,
                .range = "70s and 10min, such as 70s",
                .meaning = "how long a request without a session is recognised when it comes again"},
    SettingInfo{.setting = Setting::kWindowMax,
                .name = "requests.window_max",
                .unit = SettingUnit::kCount,
                .min = 1000,
                .max = 10'000'000,
                .range = "",
                .meaning = "requests in that window; more are refused"},
    SettingInfo{.setting = Setting::kMemcachedWindow,
                .name = "memcached.window",
                .unit = SettingUnit::kDuration,
                .min = kWindowMin_ns,
                .max = 60 * kSecond_ns,
                .range = "3s and 60s, such as 5s",
                .meaning = "how long a memcached request is recognised when it comes again"},
    SettingInfo{.setting = Setting::kMemcachedWindowMax,
                .name = "memcached.window_max",
                .unit = SettingUnit::kCount,
                .min = 1000,
                .max = 10'000'000,
                .range = "",
                .meaning = "memcached requests in that window; more are refused"},
    SettingInfo{.setting = Setting::kMemcachedMemory,
                .name = "memcached.memory_mib",
                .unit = SettingUnit::kMebibytes,
                .min = kMebibyte,
                .max = 1'048'576 * kMebibyte,
                .range = "",
                .meaning = "what memcached's items may take of memory.limit_mib, in MiB; more are refused"},
    SettingInfo{
        .setting = Setting::kMemory,
        .name = "memory.limit_mib",
        .unit = SettingUnit::kMebibytes,
        .min = 16 * kMebibyte,
        .max = 1'048'576 * kMebibyte,
        .range = "",
        .meaning = "what keys, values, sessions, answers and items may take, in MiB; what would store more is refused"},
};

template <typename AnySettings>
auto& ValueOf(AnySettings& settings, Setting setting) {
  switch (setting) {
    case Setting::kSessionTimeout: return settings.sessions.timeout_ns;
    case Setting::kSessionsMax: return settings.sessions.sessions_max;
    case Setting::kSessionAnswersMax: return settings.sessions.answers_max;
    case Setting::kWindow: return settings.window.window_ns;
    case Setting::kWindowMax: return settings.window.requests_max;
    case Setting::kMemcachedWindow: return settings.memcached.window.window_ns;
    case Setting::kMemcachedWindowMax: return settings.memcached.window.requests_max;
    case Setting::kMemcachedMemory: return settings.memcached.memory_bytes;
    case Setting::kMemory: return settings.memory_bytes;
  }
  HEDGEROW_CHECK(false);  // GetSettingValues lets none of another number in
  return settings.version;
}

bool IsKnown(uint8_t number) {
  return std::any_of(kSettings.begin(), kSettings.end(),
                     [number](const SettingInfo& info) { return static_cast<uint8_t>(info.setting) == number; });
}

}  // namespace

std::span<const SettingInfo> AllSettings() { return kSettings; }

const SettingInfo& InfoOf(Setting setting) {
  const auto found = std::find_if(kSettings.begin(), kSettings.end(),
                                  [setting](const SettingInfo& info) { return info.setting == setting; });
  HEDGEROW_CHECK(found != kSettings.end());
  return *found;
}

const SettingInfo* FindSetting(std::string_view name) {
  const auto found =
      std::find_if(kSettings.begin(), kSettings.end(), [name](const SettingInfo& info) { return name == info.name; });
  return found == kSettings.end() ? nullptr : &*found;
}

uint64_t Get(const Settings& settings, Setting setting) { return ValueOf(settings, setting); }

void Set(Settings& settings, Setting setting, uint64_t value) { ValueOf(settings, setting) = value; }

SettingValues ValuesOf(const Settings& settings) {
  SettingValues values;
  for (const SettingInfo& info : kSettings) {
    values.push_back({.setting = info.setting, .value = Get(settings, info.setting)});
  }
  return values;
}

void PutSettingValues(ByteWriter& writer, const SettingValues& values) {
  writer.Put(static_cast<uint8_t>(values.size()));
  for (const SettingValue& value : values) {
    writer.Put(static_cast<uint8_t>(value.setting));
    writer.Put(value.value);
  }
}

void GetSettingValues(ByteReader& reader, SettingValues& values) {
  values.clear();
  const auto count = reader.Get<uint8_t>();
  for (uint8_t i = 0; i < count && reader.ok(); ++i) {
    const auto number = reader.Get<uint8_t>();
    const auto value = reader.Get<uint64_t>();
    if (!IsKnown(number)) reader.Fail();
    values.push_back({.setting = static_cast<Setting>(number), .value = value});
  }
}

}  // namespace hedgerow::kv
