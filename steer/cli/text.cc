// SPDX-License-Identifier: Apache-2.0
//
// What the commands print for people.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "net/ip_address.h"
#include "steer/cli/commands.h"

namespace hedgerow::steer::cli {
namespace {

bool IsNumber(const std::string& cell) {
  return cell == "-" || (!cell.empty() && std::all_of(cell.begin(), cell.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '.' || c == ',';
         }));
}

std::string Number(uint64_t number) {
  std::string digits = absl::StrCat(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string Plural(uint64_t count, absl::string_view one) {
  return absl::StrCat(Number(count), " ", one, count == 1 ? "" : absl::EndsWith(one, "s") ? "es" : "s");
}

std::string Age(double seconds) {
  return seconds < 60 ? absl::StrFormat("%.1fs", seconds) : config::AgeText(static_cast<int64_t>(seconds * 1e9));
}

using Of = const v1::Slot&;
struct Column {
  const char* heading;
  const char* transport;  // empty: of any
  std::string (*text)(Of);
};
constexpr Column kColumns[] = {
    {"slot", "", [](Of slot) { return absl::StrCat(slot.slot()); }},
    {"state", "", [](Of slot) { return slot.state(); }},
    {"for", "", [](Of slot) { return Age(slot.seconds_in_state()); }},
    {"pid", "", [](Of slot) { return slot.pid() == 0 ? "-" : absl::StrCat(slot.pid()); }},
    {"weight", "", [](Of slot) { return absl::StrFormat("%g", slot.weight()); }},
    {"buckets", "", [](Of slot) { return Number(slot.buckets()); }},
    {"udp", "udp", [](Of slot) { return Number(slot.selected_udp()); }},
    {"udp empty", "udp", [](Of slot) { return Number(slot.empty_udp()); }},
    {"dropped", "udp", [](Of slot) { return Number(slot.udp_dropped()); }},
    {"queued", "udp", [](Of slot) { return Number(slot.udp_queued_bytes()); }},
    {"tcp", "tcp", [](Of slot) { return Number(slot.selected_tcp()); }},
    {"tcp empty", "tcp", [](Of slot) { return Number(slot.empty_tcp()); }},
    {"migrated", "tcp", [](Of slot) { return Number(slot.migrated()); }},
    {"backlog", "tcp", [](Of slot) { return Number(slot.tcp_backlog()); }},
    {"restarts", "", [](Of slot) { return Number(slot.restarts()); }},
    {"last exit", "", [](Of slot) { return slot.last_exit(); }},
};

std::string SlotTable(const google::protobuf::RepeatedPtrField<v1::Slot>& slots,
                      const std::vector<std::string>& transports) {
  std::vector<std::vector<std::string>> rows(static_cast<size_t>(slots.size()) + 1);
  for (const Column& column : kColumns) {
    const bool shown = column.transport[0] == '\0' || transports.empty() ||
                       std::find(transports.begin(), transports.end(), column.transport) != transports.end();
    for (size_t row = 0; shown && row < rows.size(); ++row)
      rows[row].push_back(row == 0 ? column.heading : column.text(slots.Get(static_cast<int>(row) - 1)));
  }
  return TableText(rows);
}

}  // namespace

std::string TableText(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  std::vector<bool> right(rows.front().size(), rows.size() > 1);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], rows[r][c].size());
      if (r > 0 && !IsNumber(rows[r][c])) right[c] = false;
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, c == 0 ? "" : "  ", right[c] ? space + row[c] : row[c] + space);
    }
    absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return out;
}

std::string GroupText(const v1::Group& group) {
  std::string text;
  for (const std::string& problem : group.problems()) absl::StrAppend(&text, "PROBLEM ", problem, "\n");
  const std::vector<std::string> transports(group.transports().begin(), group.transports().end());
  absl::StrAppend(&text, group.name(), ": ", group.address(), " (", absl::StrJoin(transports, ", "), "), supervisor ",
                  group.supervisor_pid(), group.mode() == "adopt" ? ", adopted" : "", "; an empty slot after ",
                  absl::StrFormat("%gs", group.empty_after_seconds()), ": ", group.empty(), "\n");
  if (group.devices() > 0 || group.ipv6_prefix() != 128) {
    absl::StrAppend(&text, "a source is an IPv4 address, ", group.ipv6_prefix(), " bits of an IPv6 address",
                    group.devices() > 0 ? absl::StrCat(", or a device by ", Plural(group.devices(), "network")) : "",
                    "\n");
  }
  if (group.pinned_sources() > 0) {
    absl::StrAppend(&text, Plural(group.pinned_sources(), "source"),
                    " with open connections away from the table's slot\n");
  }
  if (group.unreadable() > 0)
    absl::StrAppend(&text, Plural(group.unreadable(), "packet"), " rejected: no source could be read\n");
  if (group.pins_full() > 0)
    absl::StrAppend(&text, Plural(group.pins_full(), "connection"), " could not be recorded during a change\n");
  auto slots = group.slots();
  slots.MergeFrom(group.others());
  return absl::StrCat(text, "\n", SlotTable(slots, transports));
}

std::string ChangeText(const v1::Change& change) {
  return absl::StrCat(Plural(change.moved_buckets(), "bucket"), " of ", Number(HR_STEER_BUCKETS), " moved, ",
                      Plural(change.pinned_sources(), "source"), " stay with their open connections\n\n",
                      SlotTable(change.slots(), {}));
}

std::string ExplanationText(const v1::Explanation& explanation) {
  std::string text = absl::StrCat(
      explanation.address(), " is the source ", explanation.source(), ", bucket ", explanation.bucket(), ": slot ",
      explanation.slot(), explanation.pid() == 0 ? ", without a worker" : absl::StrCat(", worker ", explanation.pid()));
  if (explanation.pinned()) absl::StrAppend(&text, ", where it has an open connection");
  if (!explanation.empty().empty()) absl::StrAppend(&text, "\n", explanation.empty());
  return text + "\n";
}

std::string SourceText(const hr_steer_source& source, const hr_steer_config& config) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(source.words);
  const auto address =
      net::IpAddress::FromBytes(std::span<const uint8_t>(bytes, source.kind == HR_STEER_IPV4 ? 4 : 16));
  if (source.kind == HR_STEER_IPV4) return absl::StrCat("IPv4 ", address->ToString());
  if (source.kind == HR_STEER_IPV6)
    return absl::StrCat("IPv6 ", address->ToString(),
                        config.ipv6_prefix < 128 ? absl::StrCat("/", config.ipv6_prefix) : "");
  if (source.kind == HR_STEER_DEVICE) return absl::StrCat("device ", source.words[0]);
  return absl::StrCat(
      "field ", absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), config.field_bytes)));
}

}  // namespace hedgerow::steer::cli
