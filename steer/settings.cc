// SPDX-License-Identifier: Apache-2.0
#include "steer/settings.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "config/address.h"
#include "net/networks.h"

namespace hedgerow::steer {
namespace {

struct Opener {
  const char *protocol, *mask, *value;  // the first bytes, in hexadecimal
};
constexpr Opener kOpeners[] = {
    // A long header of the type Initial or 0-RTT, which version 2 numbers anew: RFC 9000, 17.2, and RFC 9369, 3.2.
    {"quic", "a0ffffffff", "8000000001"},
    {"quic", "b0ffffffff", "906b3343cf"},
    {"quic", "b0ffffffff", "a06b3343cf"},
    // A handshake's record of epoch 0 with a ClientHello: RFC 6347, 4.1 and 4.2.2.
    {"dtls", "ff0000ffff0000000000000000ff", "1600000000000000000000000001"},
    {"wireguard", "ffffffff", "01000000"},
};

absl::StatusOr<Device> ParseDevice(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  Device device;
  if (words.size() < 2 || words.size() > 3 || !absl::SimpleAtoi(words[1], &device.device.id) ||
      (words.size() == 3 && words[2] != "gateway")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got \"", line, "\", expected a network, the device's number, and perhaps the word gateway: 192.0.2.0/28 7"));
  }
  const auto network = net::Network::Parse(words[0]);
  if (!network.ok()) return network.status();
  device.device.is_gateway = words.size() == 3;
  device.network.family = network->address.is_v4() ? 4 : 6;
  device.network.prefix_bits = 32 + static_cast<uint32_t>(network->bits);
  const auto wire = network->address.wire();
  memcpy(device.network.words, wire.data(), wire.size());
  return device;
}

}  // namespace

absl::StatusOr<Listen> Listen::Parse(const std::string& text) {
  const auto wrong = [&text](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: got \"", text, "\", ", what,
                     "; expected ADDRESS:PORT: 192.0.2.1:2055, [2001:db8::1]:2055, [::]:2055"));
  };
  const auto end = config::ParseEndpoint(text);
  if (!end.has_value() && text.find(':') == std::string::npos) return wrong("which has no port");
  if (!end.has_value() || end->port == 0) return wrong("which is no address and port");
  if (config::WhyNotUnicast(end->address) == "a link-local address" && !end->address.is_v4())
    return wrong("which is a link-local address, and means nothing without its interface");
  return Listen{end->address, end->port};
}

std::string Listen::ToString() const { return config::FormatEndpoint(address.ToString(), port); }

bool Listen::wildcard() const {
  const auto wire = address.wire();
  return std::all_of(wire.begin(), wire.end(), [](uint8_t byte) { return byte == 0; });
}

std::string Settings::EmptyText() const {
  return empty == HR_STEER_REJECT ? "reject" : empty == HR_STEER_KERNEL ? "kernel" : "next";
}

std::vector<Transport> Settings::transports() const {
  std::vector<Transport> all;
  if (udp) all.push_back(Transport::kUdp);
  if (tcp) all.push_back(Transport::kTcp);
  return all;
}

std::string TransportText(Transport transport) { return transport == Transport::kUdp ? "udp" : "tcp"; }

absl::StatusOr<std::vector<Device>> ReadDevices(const std::string& file) {
  const auto unreadable = [&file](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--devices: cannot read ", file, ": ", why));
  };
  // A pipe or a device may have no end, and a line of a large file no memory.
  constexpr off_t kMost_bytes = 16 << 20;
  struct stat info {};
  if (stat(file.c_str(), &info) != 0)
    return absl::Status(errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
                        unreadable(strerror(errno)).message());
  if (!S_ISREG(info.st_mode)) return unreadable("it is no file");
  if (info.st_size > kMost_bytes) return unreadable("it has more than 16 MiB");
  std::ifstream lines(file);
  if (!lines) return unreadable(strerror(errno));
  std::vector<Device> devices;
  std::set<std::array<uint64_t, 4>> known;
  uint64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(absl::string_view(line).substr(0, line.find('#')));
    if (text.empty()) continue;
    auto device = ParseDevice(text);
    if (!device.ok())
      return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": ", device.status().message()));
    const hr_steer_network& network = device->network;
    if (!known.insert({network.prefix_bits, network.family, network.words[0], network.words[1]}).second) {
      return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": the network stands there twice"));
    }
    devices.push_back(*device);
    if (devices.size() > HR_STEER_DEVICES) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": more than ", HR_STEER_DEVICES, " networks"));
    }
  }
  return devices;
}

absl::Status ReadGatewayField(const std::string& text, Settings& settings) {
  constexpr uint32_t kMostOffset = 1400, kMostBytes = 16;
  const auto is_gateway = [](const Device& each) { return each.device.is_gateway != 0; };
  if (std::none_of(settings.devices.begin(), settings.devices.end(), is_gateway))
    return absl::InvalidArgumentError("--gateway-field: no line of --devices says gateway");
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &settings.field_offset) &&
      absl::SimpleAtoi(parts[1], &settings.field_bytes) && settings.field_bytes >= 1 &&
      settings.field_bytes <= kMostBytes && settings.field_offset <= kMostOffset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--gateway-field: got \"", text,
                                                 "\", expected OFFSET:BYTES in the payload, at most ", kMostOffset,
                                                 " and 1 to ", kMostBytes, ": 12:4"));
}

absl::Status ReadSessions(const std::string& text, Settings& settings) {
  settings.any_session = text == "any";
  for (const Opener& each : kOpeners) {
    if (text != each.protocol && !settings.any_session) continue;
    const std::string mask = absl::HexStringToBytes(each.mask), value = absl::HexStringToBytes(each.value);
    hr_steer_opener& opener = settings.openers.emplace_back();
    memcpy(opener.mask, mask.data(), mask.size());
    memcpy(opener.value, value.data(), value.size());
  }
  if (!settings.openers.empty() || text == "none") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--sessions: got \"", text, "\", expected any, quic, dtls, wireguard or none"));
}

// NotFound: it may come by itself (LDAP).
absl::StatusOr<WorkerUser> FindWorkerUser(const std::string& user, const std::string& group) {
  WorkerUser found{.set = !user.empty() || !group.empty(), .uid = geteuid(), .gid = getegid()};
  uint32_t number = 0;
  if (!user.empty()) {
    const passwd* entry = absl::SimpleAtoi(user, &number) ? getpwuid(number) : getpwnam(user.c_str());
    if (entry == nullptr) return absl::NotFoundError(absl::StrCat("--user: no user ", user, " on this host"));
    found.uid = entry->pw_uid;
    found.gid = entry->pw_gid;
    found.name = entry->pw_name;
    found.home = entry->pw_dir;
  }
  if (!group.empty()) {
    const ::group* entry = absl::SimpleAtoi(group, &number) ? getgrgid(number) : getgrnam(group.c_str());
    if (entry == nullptr) return absl::NotFoundError(absl::StrCat("--group: no group ", group, " on this host"));
    found.gid = entry->gr_gid;
  }
  if (!found.set) return found;
  if (geteuid() != 0 && found.uid != geteuid())
    return absl::PermissionDeniedError("--user: only root starts workers as another user: run as root");
  int count = 256;
  found.groups.resize(static_cast<size_t>(count));
  const bool listed =
      !found.name.empty() && getgrouplist(found.name.c_str(), found.gid, found.groups.data(), &count) >= 0;
  found.groups.resize(listed ? static_cast<size_t>(count) : 1);
  if (!listed) found.groups = {found.gid};
  return found;
}

}  // namespace hedgerow::steer
