// SPDX-License-Identifier: Apache-2.0
//
// The limits that decide what a committed command does. They are a part of the replicated state: entries of the
// log set them (CommandKind::kSettings), and snapshots hold them, so every replica applies a command under the
// same limits. A node's configuration file only has what its Replica seeds a new cluster with.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hedgerow {
class ByteReader;
class ByteWriter;
}  // namespace hedgerow

namespace hedgerow::kv {

struct SessionLimits {
  uint64_t timeout_ns = 3'600'000'000'000;
  uint64_t sessions_max = 100'000;
  uint64_t answers_max = 1024;  // per session: how far a client may run ahead of its oldest unanswered write

  bool operator==(const SessionLimits&) const = default;
};

struct WindowLimits {
  uint64_t window_ns = 70'000'000'000;
  uint64_t requests_max = 250'000;  // a full window refuses; to forget early would break the promise

  bool operator==(const WindowLimits&) const = default;
};

struct MemcachedLimits {
  WindowLimits window{.window_ns = 5'000'000'000, .requests_max = 250'000};
  uint64_t memory_bytes = uint64_t{512} << 20;  // of items, within the whole store's

  bool operator==(const MemcachedLimits&) const = default;
};

// The defaults are a part of the format: a state that holds no settings yet applies commands under them, in every
// version of the program. A cluster that is to begin with other values gets them as its seed.
struct Settings {
  SessionLimits sessions{};
  WindowLimits window{};  // of requests without a session that are not memcached's
  MemcachedLimits memcached{};
  uint64_t memory_bytes = uint64_t{1} << 30;  // that the whole state may be charged (memory.h)
  uint64_t version = 0;                       // Counts the changes. 0: nothing has set them yet.

  bool set() const { return version != 0; }
  bool operator==(const Settings&) const = default;
};

// Stands in logs and snapshots: a number is never given to another setting.
enum class Setting : uint8_t {
  kSessionTimeout = 1,
  kSessionsMax = 2,
  kSessionAnswersMax = 3,
  kWindow = 4,
  kWindowMax = 5,
  kMemcachedWindow = 6,
  kMemcachedWindowMax = 7,
  kMemcachedMemory = 8,
  kMemory = 9,
};

struct SettingValue {
  Setting setting = Setting::kSessionTimeout;
  uint64_t value = 0;  // in nanoseconds, bytes or a count

  bool operator==(const SettingValue&) const = default;
};
using SettingValues = std::vector<SettingValue>;

enum class SettingUnit : uint8_t { kDuration, kCount, kMebibytes };

// What an administrator may set. The range holds where a value is asked for, and not where it is applied: a
// version with another range must apply an old log as before.
struct SettingInfo {
  Setting setting;
  const char* name;
  SettingUnit unit;
  uint64_t min;
  uint64_t max;
  const char* range;  // in words, for durations: "10s and 168h, such as 1h"
  const char* meaning;
};

std::span<const SettingInfo> AllSettings();
const SettingInfo& InfoOf(Setting setting);
// Null: no setting has this name.
const SettingInfo* FindSetting(std::string_view name);

uint64_t Get(const Settings& settings, Setting setting);
void Set(Settings& settings, Setting setting, uint64_t value);
// All of them, in the order of AllSettings.
SettingValues ValuesOf(const Settings& settings);

void PutSettingValues(ByteWriter& writer, const SettingValues& values);
// A setting that this program does not know makes the reader fail.
void GetSettingValues(ByteReader& reader, SettingValues& values);

}  // namespace hedgerow::kv
