// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/stall_problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/node/host/node_memory.h"
#include "config/scalar.h"

namespace hedgerow::node {
namespace {

std::string Duration(uint64_t duration_ns) { return config::RoundedDurationNs(static_cast<int64_t>(duration_ns)); }

bool Decides(const NodeStatus& status, raft::NodeId id) {
  return std::any_of(status.members.begin(), status.members.end(), [id](const v1::Member& member) {
    return member.id() == id.value() && member.role() != "learner" && member.role() != "left";
  });
}

// Of the voters that this leader hears, those whose logs end before its own; and those that it does not hear.
std::string WhyNotCommitted(const NodeStatus& status) {
  if (status.disk_stalled_ns >= kStalledProblem_ns) return "this node's disk and those of others do not keep up";
  std::vector<std::string> behind;
  for (const v1::Peer& peer : status.peers) {
    const bool heard = peer.heard_ago_ns() >= 0 && peer.heard_ago_ns() < static_cast<int64_t>(kStalledProblem_ns);
    if (!Decides(status, raft::NodeId(peer.id())) || !heard || peer.match_index() >= status.last_index.value())
      continue;
    behind.push_back(absl::StrCat("node ", peer.id()));
  }
  if (behind.empty()) return "too few members answer";
  return absl::StrCat(
      absl::StrJoin(behind, " and "), behind.size() == 1 ? " answers" : " answer", " heartbeats and ",
      behind.size() == 1 ? "does" : "do",
      " not acknowledge entries: a disk there is full or hangs (see its `status`), or the network drops "
      "larger datagrams to port 4802");
}

}  // namespace

std::string DiskProblem(uint64_t disk_stalled_ns) {
  if (disk_stalled_ns < kStalledProblem_ns) return "";
  return absl::StrCat("a write to data_dir has not finished for ", Duration(disk_stalled_ns),
                      ": the disk hangs or is far too slow");
}

std::vector<std::string> StallProblems(const NodeStatus& status) {
  std::vector<std::string> problems;
  if (!status.lost.empty() || !status.removed.empty()) return problems;
  if (status.joins) {
    problems.push_back(
        "this node is to join a cluster and has not been added to it: `hedgerow-node members add` at the leader");
    return problems;
  }
  if (status.commit_stalled_ns >= kStalledProblem_ns) {
    problems.push_back(absl::StrCat("nothing has been committed for ", Duration(status.commit_stalled_ns), " while ",
                                    status.last_index.value() - status.commit.value(),
                                    " entries wait: ", WhyNotCommitted(status)));
  }
  if (status.leaderless_ns >= kLeaderlessProblem_ns) {
    problems.push_back(
        absl::StrCat("no leader is known for ", Duration(status.leaderless_ns),
                     ", so nothing is written or read here: a majority of the voters must run, reach each "
                     "other and have disks that work"));
  }
  problems.insert(problems.end(), status.full.begin(), status.full.end());
  if (std::string problem = MemoryProblem(status.memory); !problem.empty()) problems.push_back(std::move(problem));
  if (status.failing_writes > 0 && status.failing_ns >= kFailingProblem_ns) {
    problems.push_back(
        absl::StrCat("no write that was sent to this node has been done in ", Duration(status.failing_ns), ": ",
                     status.failing_writes,
                     " were refused, or not answered in their clients' time. The leader's `status` may say more"));
  }
  return problems;
}

std::vector<std::string> FullProblems(const kv::StateMachine& state) {
  const kv::Settings& settings = state.settings();
  std::vector<std::string> problems;
  const auto full = [&problems](uint64_t used, uint64_t most, absl::string_view what, absl::string_view then) {
    if (used >= most) problems.push_back(absl::StrCat(what, " (", most, "): ", then));
  };
  // The others make room for an OPEN.
  full(
      state.sessions_that_wrote(), settings.sessions.sessions_max,
      "as many sessions are open as may be, and each has written",
      "no client can open another. End the program that opens so many, or raise `sessions.max` (`hedgerow-node settings set`)");
  full(
      state.seen_without_session(), settings.window.requests_max,
      "as many writes without a session are remembered as may be",
      "more are refused until the oldest are older than `requests.window`. Clients that write much should open a session; "
      "else raise `requests.window_max` (`hedgerow-node settings set`)");
  full(state.memcached().seen(), settings.memcached.window.requests_max,
       "as many of memcached's requests are remembered as may be",
       "more are refused. Raise `memcached.window_max`, or shorten `memcached.window` (`hedgerow-node settings set`)");
  const uint64_t used = state.memory().total();
  if (kv::IsNearlyFull(used, settings.memory_bytes)) {
    problems.push_back(absl::StrCat(
        "the store takes ", used >> 20, " MiB of the ", settings.memory_bytes >> 20,
        " that it may: what would store more is refused with NO_SPACE until enough is deleted. `hedgerow-node purge --prefix` "
        "deletes many keys, memcached's `flush_all` all items; or raise `memory.limit_mib` (`hedgerow-node settings set`)"));
  }
  // Nothing as large as the largest item has room any more.
  const uint64_t memory = settings.memcached.memory_bytes;
  full(state.memcached().item_bytes() + std::min<uint64_t>(kv::kItemMax_bytes, memory / 16), memory,
       "memcached's items take all the memory that they may, or nearly",
       "nothing is evicted, so what has no room is refused. Delete items, or raise `memcached.memory_mib` "
       "(`hedgerow-node settings set`)");
  return problems;
}

std::string MemoryProblem(const v1::Memory& memory) {
  const uint64_t needed = MemoryNeeded_bytes(memory.limit_bytes());
  if (memory.available_bytes() == 0 || needed <= memory.available_bytes()) return "";
  return absl::StrCat("this node has ", memory.available_bytes() >> 20,
                      " MiB of memory, and with a full store of `memory.limit_mib` (", memory.limit_bytes() >> 20,
                      ") it may need ", needed >> 20, " MiB: give it more, or set a limit of at most ",
                      LimitFor_bytes(memory.available_bytes(), memory.limit_bytes()) >> 20,
                      " (`hedgerow-node settings set`), before the kernel ends it");
}

}  // namespace hedgerow::node
