// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/exposure.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "net/capabilities.h"
#include "net/unique_fd.h"
#include "operate/file_rights.h"
#include "operate/key_file.h"

namespace hedgerow::cli {
namespace {

constexpr size_t kRulesMax_bytes = 16 << 20;
constexpr size_t kKeyFileMax_bytes = 256;

bool InRange(const net::IpAddress& address, const char* prefix, int bits) {
  const std::array<uint8_t, 16> wanted = net::IpAddress::Parse(prefix)->mapped();
  const std::array<uint8_t, 16>& had = address.mapped();
  const int from = address.is_v4() ? 96 : 0;
  for (int bit = 0; bit < from + bits; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((wanted[bit / 8] & mask) != (had[bit / 8] & mask)) return false;
  }
  return true;
}

// What the program prints, or nothing where it is not there or fails. Its arguments are ours: no shell is asked.
std::optional<std::string> OutputOf(const char* program, const char* one, const char* two) {
  if (access(program, X_OK) != 0) return std::nullopt;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  net::UniqueFd reading(ends[0]);
  net::UniqueFd writing(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return std::nullopt;
  if (pid == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(writing.get(), STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl(program, program, one, two, nullptr);
    _exit(127);
  }
  writing.Reset();
  std::string text;
  char buffer[65536];
  while (text.size() < kRulesMax_bytes) {
    const ssize_t got = read(reading.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  reading.Reset();
  int state = 0;
  waitpid(pid, &state, 0);
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) return std::nullopt;
  return text;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "0100007F:1F90", of 32-bit words in the host's order.
std::optional<ListeningSocket> ParseEnd(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  uint32_t port = 0;
  if (parts.size() != 2 || (parts[0].size() != 8 && parts[0].size() != 32) || !absl::SimpleHexAtoi(parts[1], &port))
    return std::nullopt;
  std::vector<uint8_t> bytes(parts[0].size() / 2);
  for (size_t at = 0; at < parts[0].size(); at += 8) {
    uint32_t word = 0;
    if (!absl::SimpleHexAtoi(parts[0].substr(at, 8), &word)) return std::nullopt;
    memcpy(bytes.data() + at / 2, &word, sizeof(word));
  }
  return ListeningSocket{.address = *net::IpAddress::FromBytes(bytes), .port = static_cast<uint16_t>(port)};
}

std::set<uint64_t> SocketsOf(const std::string& process) {
  std::set<uint64_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(process + "/fd", error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry->path(), gone).string();
    absl::string_view text = target;
    uint64_t inode = 0;
    if (absl::ConsumePrefix(&text, "socket:[") && absl::ConsumeSuffix(&text, "]") && absl::SimpleAtoi(text, &inode))
      found.insert(inode);
  }
  return found;
}

}  // namespace

std::vector<std::string> RulesThatNameAlone(absl::string_view rules, const std::string& uplink, const std::string& own) {
  // One blank between words, and no quotes or commas: as nftables and iptables write names and sets.
  const auto words_of = [](absl::string_view line) -> std::vector<std::string> {
    return absl::StrSplit(line, absl::ByAnyChar(" \t\","), absl::SkipEmpty());
  };
  std::set<std::string> said;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) said.insert(absl::StrJoin(words_of(line), " "));
  std::vector<std::string> found;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) {
    const std::vector<std::string> words = words_of(line);
    const auto has = [&words](absl::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
    const bool by = has("oifname") || has("iifname") || has("oif") || has("iif") || has("-o") || has("-i");
    if (!by || !has(uplink) || has(own)) continue;
    std::vector<std::string> other = words;
    std::replace(other.begin(), other.end(), uplink, own);
    if (!said.contains(absl::StrJoin(other, " "))) found.emplace_back(absl::StripAsciiWhitespace(line));
  }
  return found;
}

std::vector<std::string> RulesThatName(absl::string_view rules, const std::vector<net::IpAddress>& addresses) {
  const auto names = [&addresses](absl::string_view word) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, '/');
    const auto address = net::IpAddress::Parse(parts[0]);
    if (!address.ok() || std::find(addresses.begin(), addresses.end(), *address) == addresses.end()) return false;
    return parts.size() == 1 || parts[1] == absl::StrCat(address->prefix_bits());
  };
  std::vector<std::string> found;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t,{}\"="), absl::SkipEmpty());
    if (std::any_of(words.begin(), words.end(), names)) found.emplace_back(absl::StripAsciiWhitespace(line));
  }
  return found;
}

absl::StatusOr<std::string> FirewallRules() {
  const auto missing = net::MissingCapabilities(std::array{net::Capability::kNetAdmin});
  if (!missing.ok()) return missing.status();
  if (!missing->empty()) return absl::PermissionDeniedError("reading the firewall's rules needs CAP_NET_ADMIN");
  std::string rules;
  bool any = false;
  const auto add = [&](const char* program, const char* one, const char* two) {
    for (const char* folder : {"/usr/sbin/", "/sbin/"}) {
      const std::optional<std::string> output = OutputOf(absl::StrCat(folder, program).c_str(), one, two);
      if (!output.has_value()) continue;
      any = true;
      absl::StrAppend(&rules, *output, "\n");
      return;
    }
  };
  add("nft", "list", "ruleset");
  // The older tables, where the kernel holds any: nft does not show them.
  if (!ReadAll("/proc/net/ip_tables_names").empty()) add("iptables-legacy-save", nullptr, nullptr);
  if (!ReadAll("/proc/net/ip6_tables_names").empty()) add("ip6tables-legacy-save", nullptr, nullptr);
  if (!any) return absl::NotFoundError("neither nft nor iptables-legacy-save shows any rules here");
  return rules;
}

std::vector<ListeningSocket> ListeningSockets(absl::string_view table) {
  constexpr absl::string_view kTcpListens = "0A", kUdpUnconnected = "07";
  std::vector<ListeningSocket> found;
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 10 || (words[3] != kTcpListens && words[3] != kUdpUnconnected)) continue;
    std::optional<ListeningSocket> socket = ParseEnd(words[1]);
    if (!socket.has_value() || !absl::SimpleAtoi(words[9], &socket->inode)) continue;
    found.push_back(*socket);
  }
  return found;
}

bool IsPublic(const net::IpAddress& address) {
  if (address.is_loopback()) return false;
  if (address.is_v4()) {
    return !InRange(address, "10.0.0.0", 8) && !InRange(address, "172.16.0.0", 12) && !InRange(address, "192.168.0.0", 16) &&
           !InRange(address, "100.64.0.0", 10) && !InRange(address, "169.254.0.0", 16);
  }
  return !InRange(address, "fc00::", 7) && !InRange(address, "fe80::", 10);
}

std::vector<std::string> PublicPortsOf(const std::string& program) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string process = entry.path().string();
    const std::string pid = entry.path().filename().string();
    // The kernel keeps 15 bytes of a name.
    if (!absl::ascii_isdigit(static_cast<unsigned char>(pid[0])) ||
        absl::StripAsciiWhitespace(ReadAll(process + "/comm")) != program.substr(0, 15)) {
      continue;
    }
    const std::set<uint64_t> sockets = SocketsOf(process);
    for (const char* protocol : {"udp", "udp6", "tcp", "tcp6"}) {
      for (const ListeningSocket& socket : ListeningSockets(ReadAll(absl::StrCat(process, "/net/", protocol)))) {
        if (!sockets.contains(socket.inode) || !IsPublic(socket.address)) continue;
        const std::string address = socket.address.ToString();
        found.push_back(absl::StrCat(program, " (pid ", pid, ") listens on ", std::string(protocol).substr(0, 3), " ",
                                     socket.address.is_v4() ? address : absl::StrCat("[", address, "]"), ":", socket.port));
      }
    }
  }
  return found;
}

std::string WhyKeyIsOpen(const std::string& path) {
  const net::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  char buffer[kKeyFileMax_bytes];
  const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
  const absl::string_view text(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (!operate::KeyDigits(absl::StripAsciiWhitespace(text)).has_value()) return "";
  const std::string why = operate::WhyNotSecret(info, path);
  return why.empty() ? "" : absl::StrCat(path, " ", why);
}

std::vector<std::string> OpenKeysIn(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (std::string why = WhyKeyIsOpen(entry->path().string()); !why.empty()) found.push_back(std::move(why));
  }
  return found;
}

std::optional<int> NetworkSetting(const std::string& name) {
  int value = 0;
  std::ifstream file(absl::StrCat("/proc/sys/net/", name));
  if (!(file >> value)) return std::nullopt;
  return value;
}

}  // namespace hedgerow::cli
