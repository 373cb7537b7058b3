// SPDX-License-Identifier: Apache-2.0
#include "proxy/instance/reload_outcome.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "net/fnv.h"

namespace hedgerow {
namespace {

ReloadResult ResultOf(const absl::StatusOr<v1::ReloadReply>& reply) {
  if (!reply.ok()) return absl::IsInvalidArgument(reply.status()) ? ReloadResult::kInvalid : ReloadResult::kFailed;
  if (reply->problems_size() > 0) return ReloadResult::kRefused;
  return reply->applied() ? ReloadResult::kApplied : ReloadResult::kUnchanged;
}

}  // namespace

void FillChanges(const std::vector<config::Change>& changes, v1::ReloadReply& reply) {
  for (const config::Change& change : changes) {
    v1::ConfigChange& out = *reply.add_changes();
    out.set_kind(change.kind);
    out.set_path(change.path);
    out.set_from(change.from);
    out.set_to(change.to);
    out.set_obstacle(change.obstacle);
  }
  for (const std::string& line : config::Obstacles(changes)) reply.add_problems(line);
}

void NoteReload(const absl::StatusOr<v1::ReloadReply>& reply, int64_t now_ns, ReloadFacts& facts) {
  facts.last = ResultOf(reply);
  facts.last_ns = now_ns;
  ++facts.counts.at(static_cast<size_t>(facts.last));
  facts.last_problems.clear();
  if (!reply.ok()) {
    facts.last_problems = absl::StrSplit(reply.status().message(), '\n');
  } else {
    facts.last_problems.assign(reply->problems().begin(), reply->problems().end());
  }
}

void NoteConfig(const v1::Config& config, int64_t now_ns, absl::Time now, ReloadFacts& facts) {
  facts.config_hash = absl::StrCat(absl::Hex(net::Fnv1a64(config.SerializeAsString()), absl::kZeroPad16));
  facts.config_since_ns = now_ns;
  facts.config_since = now;
}

std::string OutcomeText(const absl::StatusOr<v1::ReloadReply>& reply) {
  if (!reply.ok()) return absl::StrCat("not reloaded: ", std::string(reply.status().message()));
  if (reply->problems_size() > 0) return absl::StrCat("not reloaded: ", absl::StrJoin(reply->problems(), "; "));
  if (!reply->applied()) return "reloaded: nothing has changed";
  return absl::StrCat("reloaded: ", reply->changes_size(), " changes are in force");
}

}  // namespace hedgerow
