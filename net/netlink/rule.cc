// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/rule.h"

#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/netlink/host_route.h"

namespace hedgerow::net {
namespace {

std::string Hex(uint32_t value) { return absl::StrCat("0x", absl::Hex(value)); }

std::string Range(uint32_t start, uint32_t end) {
  return start == end ? absl::StrCat(start) : absl::StrCat(start, "-", end);
}

std::string ProtocolName(uint8_t protocol) {
  if (protocol == IPPROTO_UDP) return "udp";
  return protocol == IPPROTO_TCP ? "tcp" : absl::StrCat(static_cast<int>(protocol));
}

// What a rule selects by, in the order and words of `ip rule`.
std::string Selectors(const fib_rule_hdr& header, const netlink::Attributes& rule) {
  const auto source = AddressAttribute(rule, FRA_SRC);
  const auto destination = AddressAttribute(rule, FRA_DST);
  std::string text = absl::StrCat((header.flags & FIB_RULE_INVERT) != 0 ? "not " : "", "from ",
                                  source ? absl::StrCat(source->ToString(), "/", header.src_len) : "all");
  if (destination) absl::StrAppend(&text, " to ", destination->ToString(), "/", header.dst_len);
  if (header.tos != 0) absl::StrAppend(&text, " tos ", Hex(header.tos));
  const uint32_t mask = rule.Value<uint32_t>(FRA_FWMASK).value_or(UINT32_MAX);
  if (const auto mark = rule.Value<uint32_t>(FRA_FWMARK))
    absl::StrAppend(&text, " fwmark ", Hex(*mark), mask == UINT32_MAX ? "" : absl::StrCat("/", Hex(mask)));
  if (const std::string device = rule.String(FRA_IIFNAME); !device.empty()) absl::StrAppend(&text, " iif ", device);
  if (const std::string device = rule.String(FRA_OIFNAME); !device.empty()) absl::StrAppend(&text, " oif ", device);
  if (const auto users = rule.Value<fib_rule_uid_range>(FRA_UID_RANGE))
    absl::StrAppend(&text, " uidrange ", users->start, "-", users->end);
  if (const auto protocol = rule.Value<uint8_t>(FRA_IP_PROTO))
    absl::StrAppend(&text, " ipproto ", ProtocolName(*protocol));
  if (const auto ports = rule.Value<fib_rule_port_range>(FRA_SPORT_RANGE))
    absl::StrAppend(&text, " sport ", Range(ports->start, ports->end));
  if (const auto ports = rule.Value<fib_rule_port_range>(FRA_DPORT_RANGE))
    absl::StrAppend(&text, " dport ", Range(ports->start, ports->end));
  return text;
}

std::optional<SenderRule> SenderOf(const fib_rule_hdr& header, const netlink::Attributes& rule) {
  SenderRule found{.family = header.family, .device = rule.String(FRA_OIFNAME)};
  if (const auto source = AddressAttribute(rule, FRA_SRC))
    found.from = Network{.address = *source, .bits = header.src_len};
  const std::string in = rule.String(FRA_IIFNAME);
  if ((header.flags & FIB_RULE_INVERT) != 0 || (!in.empty() && in != "lo")) return std::nullopt;
  found.sender.mark = rule.Value<uint32_t>(FRA_FWMARK).value_or(0);
  if (const auto users = rule.Value<fib_rule_uid_range>(FRA_UID_RANGE)) found.sender.user = users->start;
  found.sender.protocol = rule.Value<uint8_t>(FRA_IP_PROTO).value_or(0);
  if (const auto ports = rule.Value<fib_rule_port_range>(FRA_SPORT_RANGE)) found.sender.source_port = ports->start;
  const auto ports = rule.Value<fib_rule_port_range>(FRA_DPORT_RANGE);
  if (ports) found.first_port = ports->start, found.last_port = ports->end;
  found.sender.tos = header.tos;
  const bool of_all = found.sender == Sender{} && !ports && found.device.empty() && !found.from;
  return of_all ? std::nullopt : std::optional<SenderRule>(found);
}

}  // namespace

std::string SenderRule::Describe() const {
  std::vector<std::string> parts;
  if (sender.user) parts.push_back(absl::StrCat("user ", *sender.user));
  if (sender.mark != 0) parts.push_back(absl::StrCat("mark ", Hex(sender.mark)));
  if (sender.tos != 0) parts.push_back(absl::StrCat("type of service ", Hex(sender.tos)));
  if (sender.protocol != 0) parts.push_back(absl::StrCat("protocol ", ProtocolName(sender.protocol)));
  if (sender.source_port != 0) parts.push_back(absl::StrCat("source port ", sender.source_port));
  if (!device.empty()) parts.push_back(absl::StrCat("sockets bound to ", device));
  if (first_port != 0 || last_port != 0xffff) parts.push_back(absl::StrCat("port ", Range(first_port, last_port)));
  return absl::StrJoin(parts, ", ");
}

absl::Status ForEachRule(int family,
                         const std::function<void(const fib_rule_hdr&, const netlink::Attributes&)>& visit) {
  fib_rule_hdr header{};
  header.family = static_cast<uint8_t>(family);
  netlink::Request request(RTM_GETRULE, NLM_F_DUMP, header);
  const absl::Status asked = netlink::Ask(request, "list routing rules", [&](const netlink::Message& message) {
    visit(message.Header<fib_rule_hdr>(), message.AttributesAfter<fib_rule_hdr>());
  });
  // EAFNOSUPPORT: a kernel without IPv6, as one booted with ipv6.disable=1, has no rules of it.
  return family == AF_INET6 && absl::IsUnimplemented(asked) ? absl::OkStatus() : asked;
}

absl::StatusOr<std::vector<SenderRule>> ListSenderRules() {
  std::vector<SenderRule> rules;
  for (const int family : {AF_INET, AF_INET6}) {
    const absl::Status status = ForEachRule(family, [&](const fib_rule_hdr& header, const netlink::Attributes& rule) {
      if (const auto found = SenderOf(header, rule)) rules.push_back(*found);
    });
    if (!status.ok()) return status;
  }
  return rules;
}

std::string RulesTo(int family, uint32_t table) {
  constexpr size_t kShown = 3;
  std::vector<std::string> found;
  ForEachRule(family, [&](const fib_rule_hdr& header, const netlink::Attributes& rule) {
    const uint32_t leads_to = rule.Value<uint32_t>(FRA_TABLE).value_or(header.table);
    if (header.action != FR_ACT_TO_TBL || leads_to != table || found.size() == kShown) return;
    found.push_back(
        absl::StrCat(rule.Value<uint32_t>(FRA_PRIORITY).value_or(0), ": ", Selectors(header, rule), " lookup ", table));
  }).IgnoreError();
  return absl::StrJoin(found, "`, `");
}

}  // namespace hedgerow::net
