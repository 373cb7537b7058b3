// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow dns adopt`: makes the servers that this host's resolver asks the backends of a service, and has their
// addresses translated to its VIP (`also_at`, docs/adr/0063). No file of the resolver is changed, so `hedgerow dns
// release` gives everything back by taking the service away.

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "config/address.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "operate/file_opener.h"
#include "operate/key_file.h"
#include "operate/unit.h"
#include "proxy/admin/client.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/cli/probe.h"
#include "proxy/cli/running_daemon.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/config/load.h"
#include "proxy/profiles/query.h"

namespace hedgerow::cli {
namespace {

constexpr char kResolvConf[] = "/etc/resolv.conf";
// Where resolvers of this host keep the servers that they ask: systemd-resolved, NetworkManager, dnsmasq's package.
constexpr const char* kBehindStubs[] = {"/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf",
                                        "/run/dnsmasq/resolv.conf"};
constexpr char kOwnFile[] = "/etc/hedgerow/hedgerow.yaml";
constexpr char kMark[] = "# Made by `hedgerow dns adopt`; `hedgerow dns release` removes it.\n";
constexpr uint16_t kPort = 53;
constexpr int kMostServers = 8;
constexpr size_t kMostBytes = 1 << 20;  // of a file
constexpr char kSilent[] = "does not answer", kNotAsked[] = "was not asked, which needs root";

struct Servers {
  std::vector<net::IpAddress> usable;
  std::set<std::string> names;  // that are this host's own: search domains
};

// Empty: there is none.
absl::StatusOr<std::string> ReadAll(const std::string& file) {
  if (access(file.c_str(), F_OK) != 0 && errno == ENOENT) return "";
  const absl::StatusOr<operate::FileText> read = operate::ReadText(file, kMostBytes);
  if (read.ok()) return read->text;
  return absl::FailedPreconditionError(absl::StrCat(file, " ", read.status().message()));
}

void AddServer(const std::string& text, const std::vector<net::AddressInfo>& own, Servers& out, v1::DnsReport& report) {
  const auto address = net::IpAddress::Parse(text);
  const bool is_own =
      address.ok() && std::any_of(own.begin(), own.end(), [&](const auto& each) { return each.address == *address; });
  const std::string why = !address.ok() ? (absl::StrContains(text, '%') ? "a link-local address" : "no address")
                          : is_own      ? "an address of this host"
                                        : config::WhyNotUnicast(*address);
  if (!why.empty()) return report.add_left_out(absl::StrCat(text, " (", why, ")"));
  if (std::find(out.usable.begin(), out.usable.end(), *address) == out.usable.end() && out.usable.size() < kMostServers)
    out.usable.push_back(*address);
}

// As resolv.conf(5) has it, and as editors of other systems end lines. The last `search` or `domain` holds.
Servers ReadResolvConf(const std::string& file, const std::vector<net::AddressInfo>& own, v1::DnsReport& report) {
  Servers servers;
  report.clear_left_out();
  report.set_source(file);
  const absl::StatusOr<std::string> text = ReadAll(file);
  if (!text.ok()) report.add_left_out(std::string(text.status().message()));
  for (absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(0, line.find_first_of("#;")), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    if (words[0] == "nameserver") AddServer(words[1], own, servers, report);
    if (words[0] == "search" || words[0] == "domain") servers.names = {words.begin() + 1, words.end()};
  }
  return servers;
}

absl::StatusOr<Servers> FindServers(const Arguments& arguments, v1::DnsReport& report) {
  const auto own = net::ListAddresses();
  if (!own.ok()) return own.status();
  Servers servers;
  if (arguments.Has("servers")) {
    report.set_source("--servers");
    for (absl::string_view each : absl::StrSplit(arguments.Get("servers"), ',', absl::SkipEmpty()))
      AddServer(std::string(absl::StripAsciiWhitespace(each)), *own, servers, report);
  } else {
    servers = ReadResolvConf(kResolvConf, *own, report);
    for (const char* file : kBehindStubs) {
      if (!servers.usable.empty() || access(file, R_OK) != 0) continue;
      const std::set<std::string> names = std::move(servers.names);
      servers = ReadResolvConf(file, *own, report);
      servers.names.insert(names.begin(), names.end());
    }
  }
  for (absl::string_view each : absl::StrSplit(arguments.Get("names"), ',', absl::SkipEmpty()))
    servers.names.insert(std::string(absl::StripAsciiWhitespace(each)));
  std::erase_if(servers.names, [](const std::string& each) {  // what is no name of DNS, and the root
    const std::vector<absl::string_view> labels = absl::StrSplit(each, '.', absl::SkipEmpty());
    return each.size() > 253 || labels.empty() ||
           std::any_of(labels.begin(), labels.end(), [](const auto& label) { return label.size() > 63; });
  });
  for (const net::IpAddress& each : servers.usable) report.add_servers(each.ToString());
  return servers;
}

// A query for the name's addresses (RFC 1035).
std::string QueryFor(const std::string& name) {
  v1::Service service;
  service.set_profile("dns");
  service.mutable_check()->set_name(name);
  std::string query = *NewQueryOf(config::CheckedProfile(service));
  query[query.size() - 3] = 1;  // A, in place of SOA
  return query;
}

size_t AfterName(absl::string_view message, size_t at) {
  while (at < message.size() && message[at] != 0 && (message[at] & 0xc0) == 0)
    at += 1 + static_cast<uint8_t>(message[at]);
  return at + (at < message.size() && message[at] != 0 ? 2 : 1);
}

// What servers that give the same answers have in common: the outcome, and of this host's own names the addresses.
std::string AnswerOf(const ProbeResult& result, bool own_name) {
  static constexpr const char* kOutcomes[] = {"answers", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"};
  const absl::string_view reply = result.reply;
  if (result.kind == ProbeResult::Kind::kNotAsked) return kNotAsked;
  if (result.kind != ProbeResult::Kind::kReply || reply.size() < 12) return kSilent;
  const auto word = [&](size_t at) {
    return at + 1 < reply.size() ? static_cast<uint8_t>(reply[at]) << 8 | static_cast<uint8_t>(reply[at + 1]) : 0;
  };
  const size_t outcome = reply[3] & 15;
  std::set<std::string> addresses;
  size_t at = AfterName(reply, 12) + 4;
  for (int left = word(6); left > 0 && at < reply.size(); --left) {
    const size_t fixed = AfterName(reply, at), bytes = static_cast<size_t>(word(fixed + 8));
    at = fixed + 10 + bytes;
    if (word(fixed) != 1 || bytes != 4 || at > reply.size()) continue;
    const auto* first = reinterpret_cast<const uint8_t*>(reply.data() + fixed + 10);
    addresses.insert(net::IpAddress::FromBytes(std::span(first, bytes))->ToString());
  }
  if (outcome == 0 && word(6) == 0) return "has no address";
  if (outcome == 0 && own_name) return absl::StrCat("says ", absl::StrJoin(addresses, ", "));
  return outcome < std::size(kOutcomes) ? kOutcomes[outcome] : absl::StrCat("answers with code ", outcome);
}

// Asks each server each name: split DNS gives different answers. True: some did, and not only none.
bool Compare(const Servers& servers, v1::DnsReport& report) {
  const auto links = net::ListLinks();
  const bool translated = links.ok() && std::any_of(links->begin(), links->end(), [](const net::LinkInfo& link) {
                            return net::OwnerOf(link).has_value();
                          });
  std::vector<std::pair<std::string, bool>> names = {{"example.com", false}};
  for (const std::string& name : servers.names) names.emplace_back(name, true);
  std::vector<ProbeTarget> targets;
  for (const auto& [name, own] : names) {
    report.add_names(name);
    const std::string query = QueryFor(name);
    for (const net::IpAddress& server : servers.usable)
      targets.push_back({.address = server, .port = kPort, .payload = query, .past_translation = translated});
  }
  // Asked twice: what a first question makes a resolver look up, a second one finds.
  const std::vector<ProbeResult> results = ProbeAll(targets, absl::Seconds(2));
  bool differ = false;
  for (size_t i = 0; i < names.size(); ++i) {
    std::map<std::string, std::vector<std::string>> said;
    for (size_t j = 0; j < servers.usable.size(); ++j)
      said[AnswerOf(results[i * servers.usable.size() + j], names[i].second)].push_back(servers.usable[j].ToString());
    const size_t without = said.count(kSilent) + said.count(kNotAsked);
    differ |= said.size() - without > 1;
    if (said.size() == 1 && without == 0) continue;
    std::vector<std::string> texts;
    for (const auto& [answer, by] : said) texts.push_back(absl::StrCat(absl::StrJoin(by, ", "), " ", answer));
    report.add_differences(absl::StrCat(names[i].first, ": ", absl::StrJoin(texts, "; ")));
  }
  return differ;
}

// One service for each family that has two servers at least: a hedge stays within a family.
std::string ServicesFor(const Servers& servers, v1::DnsReport& report) {
  std::string text;
  for (const bool v4 : {true, false}) {
    std::vector<std::string> of;
    for (const net::IpAddress& each : servers.usable)
      if (each.is_v4() == v4) of.push_back(each.ToString());
    if (of.size() == 1) report.add_left_out(absl::StrCat(of[0], " (the only one of ", v4 ? "IPv4" : "IPv6", ")"));
    if (of.size() < 2) continue;
    absl::StrAppend(
        &text, "  - name: dns", v4 ? "4" : "6", "\n    vip: ", v4 ? "198.18.0.53" : "'100::53'",
        "  # behind the servers' addresses; no host has it\n    port: ", kPort,
        "\n    profile: dns\n    delay: 10ms\n    deadline: 5s\n    adaptive: {floor: 5ms, cap: 50ms}\n    also_at: ['",
        absl::StrJoin(of, "', '"), "']\n    backends:\n");
    for (size_t i = 0; i < of.size(); ++i)
      absl::StrAppend(&text, "      - {name: server", i + 1, ", address: '", of[i], "', port: ", kPort, "}\n");
  }
  return text.empty() ? "" : absl::StrCat("services:\n", text);
}

absl::Status Write(const std::string& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  const group* readers = getgrnam("hedgerow");
  struct stat rights {};
  rights.st_mode = 0640;
  rights.st_uid = geteuid();
  rights.st_gid = readers != nullptr ? readers->gr_gid : getegid();
  return operate::ReplaceFile(file, text, rights);
}

// Why the daemon at the file's socket is not the one to go over to it, or to end.
absl::Status CheckDaemon(const v1::Config& config, const std::string& file) {
  const auto client = AdminClient::Connect(config.admin().socket());
  if (absl::IsUnavailable(client.status())) return absl::OkStatus();  // there is none
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::Status> status = client->Ask(&AdminClient::Stub::GetStatus);
  std::error_code error;
  if (!status.ok() || std::filesystem::equivalent(status->config_file(), file, error)) return status.status();
  return absl::FailedPreconditionError(absl::StrCat("pid ", status->pid(), " serves ", status->config_file(),
                                                    " at the socket that ", file,
                                                    " has, and stays; `--instance NAME` adopts beside it"));
}

// Where the packages' unit serves this file, it is started and stopped by systemd.
bool IsTheUnits(const std::string& file) {
  return file == kOwnFile && access("/run/systemd/system", F_OK) == 0 && access(operate::kProxyUnit, F_OK) == 0;
}

int RunQuietly(const Call& call, int (*command)(const Call&), std::map<std::string, std::string> options) {
  std::ostringstream out;
  return command({.program = call.program, .arguments = {.options = std::move(options)}, .out = out, .err = call.err});
}

int Serve(const Call& call, const std::string& file) {
  const auto config = config::LoadFile(file);
  if (!config.ok()) return call.Fail(config.status());
  if (const absl::Status ours = CheckDaemon(*config, file); !ours.ok()) return call.Fail(ours);
  if (IsTheUnits(file))
    return std::system("systemctl enable --quiet hedgerowd && systemctl reload-or-restart hedgerowd") == 0
               ? kExitOk
               : kExitFailure;
  if (FindRunningDaemon(*config, file).has_value())
    return RunQuietly(call, RunReload, {{"socket", config->admin().socket()}});
  return RunQuietly(call, RunUp, {{"config", file}});
}

std::string TextOf(const v1::DnsReport& report, bool dry_run) {
  std::string text = absl::StrCat(report.source(), ": ", absl::StrJoin(report.servers(), ", "), "\n");
  for (const std::string& each : report.left_out()) absl::StrAppend(&text, "left out: ", each, "\n");
  absl::StrAppend(&text, report.differences_size() == 0 ? "the same answers about " : "asked about ",
                  absl::StrJoin(report.names(), ", "), "\n");
  for (const std::string& each : report.differences()) absl::StrAppend(&text, "not the same: ", each, "\n");
  return absl::StrCat(text, dry_run ? "would write " : "serves ", report.file(),
                      dry_run ? absl::StrCat(":\n", report.config()) : "\n");
}

int Adopt(const Call& call, const std::string& file) {
  v1::DnsReport report;
  report.set_file(file);
  const auto servers = FindServers(call.arguments, report);
  if (!servers.ok()) return call.Fail(servers.status());
  const std::string services = ServicesFor(*servers, report);
  if (services.empty())
    return call.Fail(
        kExitFailure,
        absl::StrCat(report.source(), " names no two servers of one family that can be asked (",
                     absl::StrJoin(report.servers(), ", "), report.left_out_size() > 0 ? "; left out: " : "",
                     absl::StrJoin(report.left_out(), ", "), "); `--servers A,B` names them"));
  const absl::StatusOr<std::string> before = ReadAll(file);
  if (!before.ok()) return call.Fail(before.status());
  const bool differ = Compare(*servers, report);
  if (report.differences_size() > 0 && !call.arguments.Has("same-answers"))
    return call.Fail(kExitFailure,
                     absl::StrCat(differ ? "the servers do not give the same answers, as with split DNS:\n"
                                         : "not every server answers, though asked twice:\n",
                                  absl::StrJoin(report.differences(), "\n"),
                                  "\n`--same-answers` adopts them all the same; `--servers A,B` names others"));
  const std::string instance = call.arguments.Get("instance");
  report.set_config(absl::StrCat(
      kMark,
      instance.empty() ? ""
                       : absl::StrCat("instance: ", instance, "\nadmin: {socket: /run/hedgerow/", instance, ".sock}\n"),
      services));
  if (!before->empty() && !absl::StartsWith(*before, kMark))
    return call.Fail(
        kExitFailure,
        absl::StrCat(file, " is a configuration of another origin, and stays; this would be its part:\n", services));
  const bool dry_run = call.arguments.Has("dry-run");
  if (!dry_run) {
    if (const absl::Status written = Write(file, report.config()); !written.ok()) return call.Fail(written);
    if (const int code = Serve(call, file); code != kExitOk) {
      before->empty() ? (void)unlink(file.c_str()) : Write(file, *before).IgnoreError();
      return code;
    }
  }
  return call.Print(report, TextOf(report, dry_run));
}

int Release(const Call& call, const std::string& file) {
  v1::DnsReport report;
  report.set_file(file);
  const absl::StatusOr<std::string> text = ReadAll(file);
  if (!text.ok()) return call.Fail(text.status());
  if (text->empty()) return call.Print(report, "nothing is adopted\n");
  if (!absl::StartsWith(*text, kMark))
    return call.Fail(kExitFailure, absl::StrCat(file, " is a configuration of another origin, and stays"));
  const auto config = config::LoadFile(file);
  if (!config.ok()) return call.Fail(config.status());
  if (const absl::Status ours = CheckDaemon(*config, file); !ours.ok()) return call.Fail(ours);
  std::ostringstream unheard;
  const Call quiet{
      .program = call.program, .arguments = {.options = {{"config", file}}}, .out = unheard, .err = unheard};
  if (RunDown(quiet) != kExitOk)  // there may be no daemon
    if (const int code = RunQuietly(call, RunClean, {{"config", file}}); code != kExitOk) return code;
  if (IsTheUnits(file) && std::system("systemctl disable --quiet hedgerowd") != 0)
    call.err << "systemctl did not disable hedgerowd\n";
  if (unlink(file.c_str()) != 0) return call.Fail(absl::ErrnoToStatus(errno, absl::StrCat("removing ", file)));
  return call.Print(report, absl::StrCat("released: the resolver asks its servers themselves; removed ", file, "\n"));
}

}  // namespace

int RunDns(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  std::error_code error;
  const std::string file = std::filesystem::absolute(call.arguments.Get("config", kOwnFile), error).string();
  if (words.size() == 2 && words[1] == "adopt") return Adopt(call, file);
  if (words.size() == 2 && words[1] == "release") return Release(call, file);
  return call.UsageError("dns wants adopt or release");
}

}  // namespace hedgerow::cli
