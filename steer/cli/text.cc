// SPDX-License-Identifier: Apache-2.0
#include "steer/cli/text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "net/ip_address.h"

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

std::string SlotTable(const google::protobuf::RepeatedPtrField<v1::Slot>& slots,
                      const std::vector<std::string>& transports) {
  const auto has = [&](const char* name) {
    return transports.empty() || std::find(transports.begin(), transports.end(), name) != transports.end();
  };
  std::vector<std::string> heading = {"slot", "state", "for", "pid", "weight", "buckets"};
  if (has("udp")) heading.insert(heading.end(), {"udp", "udp empty", "dropped", "queued"});
  if (has("tcp")) heading.insert(heading.end(), {"tcp", "tcp empty", "migrated", "backlog"});
  heading.insert(heading.end(), {"restarts", "last exit"});
  std::vector<std::vector<std::string>> rows = {heading};
  for (const v1::Slot& slot : slots) {
    std::vector<std::string> row = {absl::StrCat(slot.slot()),
                                    slot.state(),
                                    Age(slot.seconds_in_state()),
                                    slot.pid() == 0 ? "-" : absl::StrCat(slot.pid()),
                                    absl::StrFormat("%g", slot.weight()),
                                    Number(slot.buckets())};
    if (has("udp")) {
      row.insert(row.end(), {Number(slot.selected_udp()), Number(slot.empty_udp()), Number(slot.udp_dropped()),
                             Number(slot.udp_queued_bytes())});
    }
    if (has("tcp")) {
      row.insert(row.end(), {Number(slot.selected_tcp()), Number(slot.empty_tcp()), Number(slot.migrated()),
                             Number(slot.tcp_backlog())});
    }
    row.insert(row.end(), {Number(slot.restarts()), slot.last_exit()});
    rows.push_back(std::move(row));
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
  absl::StrAppend(&text, "\n", SlotTable(slots, transports));
  if (group.buckets_size() == 0) return text;
  std::vector<std::vector<std::string>> rows = {{"bucket", "slot", "home", "selected"}};
  for (const v1::Bucket& bucket : group.buckets()) {
    rows.push_back({absl::StrCat(bucket.bucket()), absl::StrCat(bucket.slot()), absl::StrCat(bucket.home_slot()),
                    Number(bucket.selected())});
  }
  return absl::StrCat(text, "\n", TableText(rows));
}

std::string ChangeText(const v1::Change& change) {
  return absl::StrCat(Plural(change.moved_buckets(), "bucket"), " of ", Number(HR_STEER_BUCKETS),
                      " moved (the fewest possible: ", Number(change.fewest_possible()), "), ",
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
