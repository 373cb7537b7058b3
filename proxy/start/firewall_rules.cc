// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/firewall_rules.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "net/capabilities.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

constexpr size_t kRulesMax_bytes = 16 << 20;

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

// The kernel names the tables of the older kind that it holds.
bool HoldsTables(const char* path) {
  std::string name;
  return static_cast<bool>(std::ifstream(path) >> name);
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
  if (HoldsTables("/proc/net/ip_tables_names")) add("iptables-legacy-save", nullptr, nullptr);
  if (HoldsTables("/proc/net/ip6_tables_names")) add("ip6tables-legacy-save", nullptr, nullptr);
  if (!any) return absl::NotFoundError("neither nft nor iptables-legacy-save shows any rules here");
  return rules;
}

}  // namespace hedgerow
