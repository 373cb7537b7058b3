// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/firewall_rules.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "net/steady_wait.h"
#include "absl/time/time.h"
#include "net/capabilities.h"
#include "net/netlink/link.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

constexpr size_t kRulesMax_bytes = 16 << 20;
constexpr absl::Duration kPatience = absl::Seconds(3);

// What the program prints, or nothing where it is not there, fails, or takes too long. Its arguments are ours: no shell
// is asked.
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
  const absl::Time deadline = net::MonotonicNow() + kPatience;
  bool whole = false;
  while (text.size() < kRulesMax_bytes) {
    pollfd ready = {.fd = reading.get(), .events = POLLIN, .revents = 0};
    const int64_t left_ms = std::max<int64_t>(absl::ToInt64Milliseconds(deadline - net::MonotonicNow()), 0);
    const int polled = poll(&ready, 1, static_cast<int>(left_ms));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) break;
    const ssize_t got = read(reading.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    whole = got == 0;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  reading.Reset();
  if (!whole) kill(pid, SIGKILL);
  int state = 0;
  waitpid(pid, &state, 0);
  if (!whole || !WIFEXITED(state) || WEXITSTATUS(state) != 0) return std::nullopt;
  return text;
}

// The kernel names the tables of the older kind that it holds.
bool HoldsTables(const char* path) {
  std::string name;
  return static_cast<bool>(std::ifstream(path) >> name);
}

// One blank between words, and no quotes or commas: as nftables and iptables write names and sets.
std::vector<std::string> WordsOf(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t\","), absl::SkipEmpty());
}

struct Rule {
  std::string line;
  std::vector<std::string> words;
  std::string hook;  // of its chain, in nftables' words; empty: others jump to that chain
  bool Has(absl::string_view word) const { return std::find(words.begin(), words.end(), word) != words.end(); }
};

// The elements of nftables' named sets.
std::map<std::string, std::vector<std::string>> SetsOf(absl::string_view rules) {
  std::map<std::string, std::vector<std::string>> sets;
  std::string name;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) {
    const std::vector<std::string> words = WordsOf(line);
    if (words.size() == 3 && words[0] == "set" && words[2] == "{") name = words[1];
    if (words.size() == 1 && words[0] == "}") name.clear();
    if (!name.empty()) sets[name].insert(sets[name].end(), words.begin(), words.end());
  }
  return sets;
}

bool Matches(const std::string& pattern, const std::string& interface) {
  if (pattern.size() > 1 && (pattern.back() == '*' || pattern.back() == '+'))
    return absl::StartsWith(interface, absl::string_view(pattern).substr(0, pattern.size() - 1));
  return pattern == interface;
}

// The hook of an iptables chain; empty: it is none of the built-in ones.
std::string HookOf(const std::string& chain) {
  const std::set<std::string> hooks = {"INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"};
  return hooks.contains(chain) ? absl::AsciiStrToLower(chain) : "";
}

// By which packets come or leave by `uplink`, and nothing is said of `own`.
std::vector<Rule> RulesByInterface(absl::string_view rules, const std::string& uplink, const std::string& own) {
  const auto sets = SetsOf(rules);
  std::set<std::string> said;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) said.insert(absl::StrJoin(WordsOf(line), " "));
  std::vector<Rule> found;
  std::string hook;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) {
    Rule rule = {.line = std::string(absl::StripAsciiWhitespace(line)), .words = WordsOf(line), .hook = hook};
    const std::vector<std::string>& words = rule.words;
    if (!words.empty() && words[0] == "chain") hook.clear();
    if (words.size() > 3 && words[0] == "type" && words[2] == "hook") hook = words[3];
    if (words.size() > 1 && words[0] == "-A") rule.hook = HookOf(words[1]);
    const auto names = [&](const std::string& interface) {
      return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        const auto set = word[0] == '@' ? sets.find(word.substr(1)) : sets.end();
        if (set == sets.end()) return Matches(word, interface);
        return std::any_of(set->second.begin(), set->second.end(),
                           [&](const std::string& each) { return Matches(each, interface); });
      });
    };
    const bool by = rule.Has("oifname") || rule.Has("iifname") || rule.Has("oif") || rule.Has("iif") ||
                    rule.Has("-o") || rule.Has("-i");
    if (!by || !names(uplink) || names(own)) continue;
    std::vector<std::string> other = words;
    std::replace(other.begin(), other.end(), uplink, own);
    if (other == words || !said.contains(absl::StrJoin(other, " "))) found.push_back(std::move(rule));
  }
  return found;
}

}  // namespace

std::vector<std::string> RulesThatNameAlone(absl::string_view rules, const std::string& uplink,
                                            const std::string& own) {
  std::vector<std::string> found;
  for (const Rule& rule : RulesByInterface(rules, uplink, own)) found.push_back(rule.line);
  return found;
}

std::vector<std::string> RulesForForwarded(absl::string_view rules, const std::string& uplink, const std::string& own) {
  std::vector<std::string> found;
  for (const Rule& rule : RulesByInterface(rules, uplink, own)) {
    const bool leaves = rule.Has("oifname") || rule.Has("oif") || rule.Has("-o");
    const bool hides = rule.Has("masquerade") || rule.Has("snat") || rule.Has("MASQUERADE") || rule.Has("SNAT");
    const bool passes = (rule.Has("accept") || rule.Has("ACCEPT")) && (rule.hook.empty() || rule.hook == "forward");
    if (!rule.Has("!=") && !rule.Has("!") && ((leaves && hides) || passes)) found.push_back(rule.line);
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

bool MayForwardTo(const v1::Service& service) {
  const auto vip = net::IpAddress::Parse(service.vip());
  return service.clients_size() > 0 ||
         (vip.ok() && vip->is_v4() && net::NetworkSetting("ipv4/ip_forward").value_or(0) != 0);
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
  if (!any) return absl::NotFoundError("neither nft nor iptables-legacy-save shows any rules here, in three seconds");
  return rules;
}

}  // namespace hedgerow
