// SPDX-License-Identifier: Apache-2.0
//
// The keys, and how each kind of value is read; see the header.

#include "cluster/node/config_keys.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cluster/kv/command.h"
#include "cluster/node/config_check.h"
#include "cluster/node/setting_text.h"
#include "config/scalar.h"
#include "config/tree.h"
#include "operate/key_file.h"

namespace hedgerow::node {
namespace {

using config::Tree;

constexpr bool kRequired = true;
constexpr bool kOptional = false;
// A proxy's configuration names it too, as a signed number.
constexpr uint64_t kClusterIdMax = INT64_MAX;
constexpr uint64_t kNodeIdMax = UINT32_MAX;  // the wire format has 4 bytes for it
// sockaddr_un holds 108 bytes with the final zero; the rest is for a temporary name beside it.
constexpr size_t kSocketPathMax_bytes = 100;
constexpr char kKeyExpected[] = "32 hexadecimal digits, not all 0, as `openssl rand -hex 16` prints";
constexpr char kAddressExpected[] = "an address and port, such as 10.0.0.1:4802 or [fd00::1]:4802";

bool AllOf(absl::string_view text, bool (*fits)(unsigned char)) {
  return std::all_of(text.begin(), text.end(), [&](char c) { return fits(static_cast<unsigned char>(c)); });
}

ConfigKey Scalar(std::string name, bool required, std::string expected,
                 std::function<bool(const std::string&)> take) {
  ConfigKey key{.name = std::move(name), .required = required, .expected = std::move(expected)};
  key.read = [take = std::move(take)](const Tree& tree) { return take(tree.scalar); };
  return key;
}

ConfigKey Whole(std::string name, bool required, uint64_t min, uint64_t max,
                std::function<void(uint64_t)> take) {
  ConfigKey key{.name = std::move(name),
                .required = required,
                .expected = absl::StrCat("a whole number between ", min, " and ", max)};
  key.read = [min, max, take = std::move(take)](const Tree& tree) {
    uint64_t number = 0;
    // SimpleAtoi alone would take a sign and white space.
    if (tree.quoted || !AllOf(tree.scalar, absl::ascii_isdigit)) return false;
    if (!absl::SimpleAtoi(tree.scalar, &number) || number < min || number > max) return false;
    take(number);
    return true;
  };
  return key;
}

// "1/61b68ac4e140c840".
bool TakeBeginning(const std::string& text, NodeConfig& config) {
  constexpr size_t kDigits = 16;
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  const std::string epoch = text.substr(0, slash);
  const std::string beginning = text.substr(slash + 1);
  uint64_t number = 0;
  if (!AllOf(epoch, absl::ascii_isdigit) || !absl::SimpleAtoi(epoch, &number) || number == 0) return false;
  if (beginning.size() != kDigits || !AllOf(beginning, absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(beginning, &config.beginning)) {
    return false;
  }
  config.cluster_epoch = number;
  return true;
}

// `range` in words: "1ms and 10s, such as 20ms".
ConfigKey Duration(std::string name, absl::string_view range, int64_t min_ns, int64_t max_ns, uint64_t& into) {
  return Scalar(std::move(name), kOptional, absl::StrCat("a duration between ", range),
                [min_ns, max_ns, &into](const std::string& text) {
                  const std::optional<int64_t> ns = ParseLongDurationNs(text);
                  if (!ns.has_value() || *ns < min_ns || *ns > max_ns) return false;
                  into = static_cast<uint64_t>(*ns);
                  return true;
                });
}

// "4096", "64KiB"; units KiB, MiB, GiB. Whole numbers only.
std::optional<uint64_t> ParseBytes(absl::string_view text) {
  uint64_t scale = 1;
  for (const auto& [unit, bytes] : {std::pair("KiB", uint64_t{1} << 10), std::pair("MiB", uint64_t{1} << 20),
                                    std::pair("GiB", uint64_t{1} << 30)}) {
    if (!absl::ConsumeSuffix(&text, unit)) continue;
    scale = bytes;
    break;
  }
  uint64_t count = 0;
  uint64_t bytes = 0;
  if (text.empty() || !AllOf(text, absl::ascii_isdigit) || !absl::SimpleAtoi(text, &count)) return std::nullopt;
  if (__builtin_mul_overflow(count, scale, &bytes)) return std::nullopt;
  return bytes;
}

// `range` in words: "64KiB and 64GiB, such as 256MiB".
ConfigKey Size(std::string name, absl::string_view range, uint64_t min_bytes, uint64_t max_bytes,
               uint64_t& into) {
  return Scalar(std::move(name), kOptional, absl::StrCat("a size between ", range),
                [min_bytes, max_bytes, &into](const std::string& text) {
                  const std::optional<uint64_t> bytes = ParseBytes(text);
                  if (!bytes.has_value() || *bytes < min_bytes || *bytes > max_bytes) return false;
                  into = *bytes;
                  return true;
                });
}

ConfigKey Address(std::string name, bool required, NetAddress& into) {
  return Scalar(std::move(name), required, kAddressExpected, [&into](const std::string& text) {
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(text);
    if (!address.ok()) return false;
    into = *address;
    return true;
  });
}

ConfigKey Path(std::string name, size_t max_bytes, std::string& into) {
  return Scalar(std::move(name), kOptional, absl::StrCat("an absolute path of at most ", max_bytes, " bytes"),
                [max_bytes, &into](const std::string& text) {
                  if (text.size() < 2 || text.size() > max_bytes || text[0] != '/' || text.back() == '/')
                    return false;
                  into = text;
                  return true;
                });
}

ConfigKey Secret(std::string name, std::function<void(const wire::Key&)> take) {
  ConfigKey key =
      Scalar(std::move(name), kOptional, kKeyExpected, [take = std::move(take)](const std::string& text) {
        const std::optional<std::string> digits = operate::KeyDigits(text);
        if (digits.has_value()) take(wire::ParseKey(*digits).value());
        return digits.has_value();
      });
  key.secret = true;
  return key;
}

ConfigKey List(std::string name, bool required, size_t min, size_t max,
               std::function<std::vector<ConfigKey>(size_t)> item) {
  ConfigKey key{.name = std::move(name), .required = required};
  key.items_min = min;
  key.items_max = max;
  key.item = std::move(item);
  return key;
}

std::vector<ConfigKey> MemberKeys(MemberConfig& member) {
  return {
      Whole("id", kRequired, 1, kNodeIdMax, [&member](uint64_t id) { member.id = raft::NodeId(id); }),
      Address("peer", kRequired, member.peer),
      Address("serve", kRequired, member.serve),
  };
}

bool IsProxyName(absl::string_view text) {
  return !text.empty() && text.size() <= 31 && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

std::vector<ConfigKey> ProxyKeys(ProxyConfig& proxy) {
  return {
      Scalar("name", kRequired, "a name of 1 to 31 of the characters a-z, 0-9 and -, not starting with -",
             [&proxy](const std::string& text) {
               if (!IsProxyName(text)) return false;
               proxy.name = text;
               return true;
             }),
      Address("address", kRequired, proxy.address),
  };
}

bool TakeDurability(const std::string& text, Durability& into) {
  for (const Durability mode : {Durability::kDisk, Durability::kMemory}) {
    if (text != Name(mode)) continue;
    into = mode;
    return true;
  }
  return false;
}

ConfigKey Switch(std::string name, bool& into) {
  return Scalar(std::move(name), kOptional, "on or off", [&into](const std::string& text) {
    if (text != "on" && text != "off") return false;
    into = text == "on";
    return true;
  });
}

ConfigKey Xdp(XdpMode& into) {
  return Scalar("xdp", kOptional, "one of auto, native, generic", [&into](const std::string& text) {
    for (const auto& [word, mode] : {std::pair("auto", XdpMode::kAuto), std::pair("native", XdpMode::kNative),
                                     std::pair("generic", XdpMode::kGeneric)}) {
      if (text != word) continue;
      into = mode;
      return true;
    }
    return false;
  });
}

ConfigKey Offloads(OffloadsConfig& offloads) {
  ConfigKey block{.name = "offloads"};
  block.block = {
      Switch("heartbeat", offloads.heartbeat), Switch("vote", offloads.vote),
      Switch("append", offloads.append),       Switch("quorum", offloads.quorum),
      Switch("broadcast", offloads.broadcast), Switch("watchdog", offloads.watchdog),
      Xdp(offloads.xdp),
  };
  return block;
}

ConfigKey SnapshotKeys(SnapshotsConfig& snapshots) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const auto whole = [](const char* name, uint64_t min, uint64_t& into) {
    return Whole(name, kOptional, min, 1'000'000'000, [&into](uint64_t count) { into = count; });
  };
  ConfigKey block{.name = "snapshots"};
  block.block = {
      whole("every_entries", 100, snapshots.every_entries),
      Size("every_bytes", "64KiB and 64GiB, such as 256MiB", 64 * 1024, 64 * kGiB, snapshots.every_bytes),
      whole("tail_entries", 0, snapshots.tail_entries),
      Size("tail_bytes", "0 and 64GiB, such as 32MiB", 0, 64 * kGiB, snapshots.tail_bytes),
      Size("rate", "64KiB and 64GiB, such as 64MiB", 64 * 1024, 64 * kGiB, snapshots.rate_bytes_per_s),
  };
  return block;
}

// One of the cluster's settings, which this file only seeds.
ConfigKey Seed(std::string name, kv::Setting setting, NodeConfig& config) {
  const kv::SettingInfo& info = kv::InfoOf(setting);
  ConfigKey key{.name = std::move(name), .required = kOptional, .expected = ExpectedOf(info)};
  key.read = [&info, &config](const Tree& tree) {
    if (tree.quoted && info.unit != kv::SettingUnit::kDuration) return false;
    const std::optional<uint64_t> value = ParseSetting(info, tree.scalar);
    if (!value.has_value()) return false;
    kv::Set(config.settings, info.setting, *value);
    config.settings_in_file.push_back(info.setting);
    return true;
  };
  return key;
}

ConfigKey Memcached(NodeConfig& config) {
  MemcachedConfig& memcached = config.memcached;
  ConfigKey block{.name = "memcached"};
  block.block = {
      Address("listen", kRequired, memcached.listen),
      Whole("value_max", kOptional, 1, kv::kItemMax_bytes,
            [&memcached](uint64_t bytes) { memcached.value_max_bytes = bytes; }),
      Seed("memory_mib", kv::Setting::kMemcachedMemory, config),
      Seed("window", kv::Setting::kMemcachedWindow, config),
      Seed("window_max", kv::Setting::kMemcachedWindowMax, config),
      Whole("rate", kOptional, 1, 20'000, [&memcached](uint64_t rate) { memcached.rate_per_s = rate; }),
      Switch("once_in_window", memcached.once_in_window),
  };
  return block;
}

bool TakeMetricsListen(const std::string& text, std::string& into) {
  const absl::StatusOr<NetAddress> address = NetAddress::Parse(text);
  if (!text.empty() && (!address.ok() || !IsLoopback(*address))) return false;
  into = text;
  return true;
}

}  // namespace

std::vector<ConfigKey> KeysFor(NodeConfig& config, KeyFiles& files) {
  constexpr int64_t kSecond_ns = 1'000'000'000;
  // The entries' keys point at them.
  config.members.reserve(kMembersMax);
  config.proxies.reserve(kProxiesMax);
  ConfigKey election{.name = "election"};
  election.block = {
      Duration("floor", "1ms and 10s, such as 20ms", 1'000'000, 10 * kSecond_ns, config.election_floor_ns),
      Duration("cap", "10ms and 60s, such as 2s", 10'000'000, 60 * kSecond_ns, config.election_cap_ns),
  };
  ConfigKey sessions{.name = "sessions"};
  sessions.block = {
      Seed("timeout", kv::Setting::kSessionTimeout, config),
      Seed("max", kv::Setting::kSessionsMax, config),
  };
  return {
      Whole("cluster_id", kRequired, 1, kClusterIdMax, [&config](uint64_t id) { config.cluster_id = id; }),
      Secret("cluster_key", [&config](const wire::Key& key) { config.cluster_key = key; }),
      Path("cluster_key_file", 4095, files.cluster_key),
      Secret("announce_key", [&config](const wire::Key& key) { config.announce_key = key; }),
      Path("announce_key_file", 4095, files.announce_key),
      Whole("node", kRequired, 1, kNodeIdMax, [&config](uint64_t id) { config.self = raft::NodeId(id); }),
      Switch("join", config.join),
      Scalar("beginning", kOptional,
             "EPOCH/NUMBER as `hedgerow-node status` of a member says it, such as 1/61b68ac4e140c840",
             [&config](const std::string& text) { return TakeBeginning(text, config); }),
      Scalar("durability", kOptional, "one of disk, memory",
             [&config](const std::string& text) { return TakeDurability(text, config.durability); }),
      Path("data_dir", 4000, config.data_dir),
      Address("serve", kOptional, config.serve),
      Path("admin_socket", kSocketPathMax_bytes, config.admin_socket),
      Scalar("metrics_listen", kOptional,
             "a loopback address and port, such as 127.0.0.1:9465, or \"\" for none",
             [&config](const std::string& text) { return TakeMetricsListen(text, config.metrics_listen); }),
      List("members", kRequired, 1, kMembersMax,
           [&config](size_t) { return MemberKeys(config.members.emplace_back()); }),
      List("proxies", kOptional, 0, kProxiesMax,
           [&config](size_t) { return ProxyKeys(config.proxies.emplace_back()); }),
      std::move(election),
      std::move(sessions),
      Offloads(config.offloads),
      Duration("spin", "0us and 10ms, such as 50us", 0, 10'000'000, config.spin_ns),
      Whole("waiting_max", kOptional, 4, 1'000'000, [&config](uint64_t max) { config.waiting_max = max; }),
      SnapshotKeys(config.snapshots),
      Memcached(config),
  };
}

}  // namespace hedgerow::node
