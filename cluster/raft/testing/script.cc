// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/testing/script.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cluster/raft/describe.h"
#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using Words = std::vector<std::string>;

absl::Status Expected(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("expected: ", what)); }

class Script {
 public:
  Script();
  absl::Status Run(const Words& words, std::vector<std::string>& lines);

 private:
  using Command = std::function<absl::Status(const Words&)>;

  absl::Status Nodes(const Words& words);
  absl::Status Log(const Words& words);
  absl::Status Wait(const Words& words);
  absl::Status Tick(const Words& words);
  absl::Status Deliver(const Words& words);
  absl::Status Drop(const Words& words);
  absl::Status Propose(const Words& words);
  absl::Status Join(const Words& words);
  absl::Status Change(const Words& words);
  absl::Status Transfer(const Words& words);
  absl::Status Resign(const Words& words);
  absl::Status KernelAppend(const Words& words);
  absl::Status KernelVote(const Words& words);
  absl::Status KernelHeard(const Words& words);
  absl::Status KernelCount(const Words& words);
  absl::Status Status();
  // A command whose arguments are nodes, and nothing else.
  Command OnNodes(size_t count, std::function<void(TestCluster&, const std::vector<uint64_t>&)> act);
  absl::StatusOr<uint64_t> Node(const std::string& word) const;

  std::map<std::string, Command> commands_;
  std::unique_ptr<TestCluster> cluster_;
  std::vector<std::string> lines_;
};

Script::Script() {
  using Ids = std::vector<uint64_t>;
  commands_["nodes"] = [this](const Words& words) { return Nodes(words); };
  commands_["log"] = [this](const Words& words) { return Log(words); };
  commands_["wait"] = [this](const Words& words) { return Wait(words); };
  commands_["tick"] = [this](const Words& words) { return Tick(words); };
  commands_["deliver"] = [this](const Words& words) { return Deliver(words); };
  commands_["drop"] = [this](const Words& words) { return Drop(words); };
  commands_["propose"] = [this](const Words& words) { return Propose(words); };
  commands_["join"] = [this](const Words& words) { return Join(words); };
  commands_["change"] = [this](const Words& words) { return Change(words); };
  commands_["transfer"] = [this](const Words& words) { return Transfer(words); };
  commands_["resign"] = [this](const Words& words) { return Resign(words); };
  commands_["kernel-append"] = [this](const Words& words) { return KernelAppend(words); };
  commands_["kernel-vote"] = [this](const Words& words) { return KernelVote(words); };
  commands_["kernel-heard"] = [this](const Words& words) { return KernelHeard(words); };
  commands_["kernel-count"] = [this](const Words& words) { return KernelCount(words); };
  commands_["status"] = [this](const Words&) { return Status(); };
  commands_["read"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.Read(ids[0]); });
  commands_["cut"] = OnNodes(2, [](TestCluster& cluster, const Ids& ids) { cluster.Cut(ids[0], ids[1]); });
  commands_["isolate"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.Isolate(ids[0]); });
  commands_["heal"] = OnNodes(0, [](TestCluster& cluster, const Ids&) { cluster.Heal(); });
  commands_["elect"] = [this](const Words& words) {
    const absl::Status status = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.Elect(ids[0]); })(words);
    lines_.clear();  // election.txt tells how it goes
    return status;
  };
  commands_["hold-disk"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.HoldDisk(ids[0]); });
  commands_["sync"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.ReleaseDisk(ids[0]); });
  commands_["crash"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.Crash(ids[0]); });
  commands_["snapshot"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.TakeSnapshot(ids[0]); });
  commands_["send-snapshot"] =
      OnNodes(2, [](TestCluster& cluster, const Ids& ids) { cluster.SendSnapshot(ids[0], ids[1]); });
  commands_["snapshot-failed"] = OnNodes(2, [](TestCluster& cluster, const Ids& ids) {
    cluster.Step(ids[0], SnapshotSent{.to = NodeId(ids[1]), .index = {}, .delivered = false});
  });
  commands_["snapshot-sent"] = OnNodes(2, [](TestCluster& cluster, const Ids& ids) {
    const LogIndex index = cluster.At(ids[0]).snapshot().last.index;
    cluster.Step(ids[0], SnapshotSent{.to = NodeId(ids[1]), .index = index, .delivered = true});
  });
  commands_["restart"] = OnNodes(1, [](TestCluster& cluster, const Ids& ids) { cluster.Restart(ids[0]); });
}

absl::Status Script::Run(const Words& words, std::vector<std::string>& lines) {
  const auto command = commands_.find(words[0]);
  if (command == commands_.end()) return absl::InvalidArgumentError("no such command");
  if (cluster_ == nullptr && words[0] != "nodes") return Expected("nodes COUNT first");
  lines_.clear();
  if (absl::Status status = command->second(words); !status.ok()) return status;
  if (!cluster_->violation().empty()) lines_.push_back("VIOLATION " + cluster_->violation());
  lines = lines_;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Script::Node(const std::string& word) const {
  uint64_t id = 0;
  if (!absl::SimpleAtoi(word, &id) || !cluster_->Has(NodeId(id))) return Expected("a node");
  return id;
}

Script::Command Script::OnNodes(size_t count, std::function<void(TestCluster&, const std::vector<uint64_t>&)> act) {
  return [this, count, act = std::move(act)](const Words& words) -> absl::Status {
    if (words.size() != count + 1) return Expected(absl::StrCat(count, " nodes"));
    std::vector<uint64_t> ids;
    for (size_t i = 1; i < words.size(); ++i) {
      const auto id = Node(words[i]);
      if (!id.ok()) return id.status();
      ids.push_back(*id);
    }
    act(*cluster_, ids);
    return absl::OkStatus();
  };
}

absl::Status Script::Nodes(const Words& words) {
  uint64_t count = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &count) || count == 0 || count > HR_RAFT_MAX_MEMBERS) {
    return Expected("nodes COUNT [batch=ENTRIES] [inflight=APPENDS] [tail=ENTRIES]");
  }
  Options options;
  // Round figures read better than tuned ones.
  options.election_floor_ns = 100'000'000;
  size_t tail = 0;
  for (size_t i = 2; i < words.size(); ++i) {
    const std::pair<std::string, std::string> option = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    size_t* const value = option.first == "batch"      ? &options.append_max_entries
                          : option.first == "inflight" ? &options.inflight_max_appends
                          : option.first == "tail"     ? &tail
                                                       : nullptr;
    if (value == nullptr || !absl::SimpleAtoi(option.second, value)) return Expected("batch=N, inflight=N or tail=N");
  }
  options.tail_max_entries = tail;
  cluster_ = std::make_unique<TestCluster>(count, options);
  cluster_->Observe([this](NodeId node, const Outputs& outputs) {
    for (std::string& line : Describe(node, outputs)) lines_.push_back(std::move(line));
  });
  return absl::OkStatus();
}

absl::Status Script::Log(const Words& words) {
  if (words.size() < 2) return Expected("log NODE TERM...");
  const auto id = Node(words[1]);
  if (!id.ok()) return id.status();
  std::vector<uint64_t> terms;
  for (size_t i = 2; i < words.size(); ++i) {
    if (!absl::SimpleAtoi(words[i], &terms.emplace_back())) return Expected("terms");
  }
  cluster_->SetLog(*id, {.term = Term(terms.empty() ? 0 : terms.back()), .voted_for = {}}, terms);
  return absl::OkStatus();
}

absl::Status Script::Wait(const Words& words) {
  absl::Duration duration;
  if (words.size() != 2 || !absl::ParseDuration(words[1], &duration)) return Expected("wait DURATION");
  cluster_->Wait(static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration)));
  return absl::OkStatus();
}

absl::Status Script::Tick(const Words& words) {
  if (words.size() < 2 || words.size() > 3) return Expected("tick NODE [DURATION]");
  const auto id = Node(words[1]);
  if (!id.ok()) return id.status();
  if (words.size() == 3) {
    if (absl::Status status = Wait({"wait", words[2]}); !status.ok()) return status;
  }
  cluster_->Tick(*id);
  return absl::OkStatus();
}

absl::Status Script::Deliver(const Words& words) {
  if (words.size() == 1) {
    cluster_->Deliver();
    return absl::OkStatus();
  }
  return OnNodes(2, [](TestCluster& cluster, const auto& ids) { cluster.DeliverOnce(ids[0], ids[1]); })(words);
}

absl::Status Script::Drop(const Words& words) {
  if (words.size() == 1) {
    cluster_->DropAll();
    return absl::OkStatus();
  }
  return OnNodes(2, [](TestCluster& cluster, const auto& ids) { cluster.Drop(ids[0], ids[1]); })(words);
}

absl::Status Script::Propose(const Words& words) {
  if (words.size() < 3) return Expected("propose NODE TEXT");
  const auto id = Node(words[1]);
  if (!id.ok()) return id.status();
  cluster_->Propose(*id, absl::StrJoin(words.begin() + 2, words.end(), " "));
  return absl::OkStatus();
}

absl::Status Script::Join(const Words& words) {
  uint64_t id = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &id) || id == 0 || cluster_->Has(NodeId(id)))
    return Expected("join NODE, a new one");
  cluster_->Join(id);
  return absl::OkStatus();
}

// change LEADER (add NODE | promote NODE | remove NODE | move NODE ADDRESS)...
absl::Status Script::Change(const Words& words) {
  using Kind = MemberChange::Kind;
  const std::map<std::string, Kind> kinds = {
      {"add", Kind::kAddLearner}, {"promote", Kind::kPromote}, {"remove", Kind::kRemove}, {"move", Kind::kMove}};
  const absl::Status expected = Expected("change LEADER (add|promote|remove NODE | move NODE ADDRESS)...");
  if (words.size() < 4) return expected;
  const auto leader = Node(words[1]);
  if (!leader.ok()) return leader.status();
  std::vector<MemberChange> changes;
  for (size_t i = 2; i < words.size();) {
    const auto kind = kinds.find(words[i]);
    uint64_t node = 0;
    if (kind == kinds.end() || i + 1 >= words.size() || !absl::SimpleAtoi(words[i + 1], &node)) return expected;
    changes.push_back({.kind = kind->second, .node = NodeId(node)});
    i += 2;
    if (kind->second != Kind::kMove) continue;
    if (i >= words.size()) return expected;
    changes.back().address = words[i++];
  }
  cluster_->Change(*leader, std::move(changes));
  return absl::OkStatus();
}

absl::Status Script::Transfer(const Words& words) {
  if (words.size() != 3) return Expected("transfer LEADER TARGET");
  const auto leader = Node(words[1]);
  const auto target = Node(words[2]);
  if (!leader.ok() || !target.ok()) return Expected("transfer LEADER TARGET");
  cluster_->Step(*leader, TransferLeadership{.target = NodeId(*target)});
  return absl::OkStatus();
}

// resign LEADER TERM SUCCESSOR...: every successor gets the hint, with its rank.
absl::Status Script::Resign(const Words& words) {
  uint64_t term = 0;
  if (words.size() < 4 || !absl::SimpleAtoi(words[2], &term)) return Expected("resign LEADER TERM SUCCESSOR...");
  const auto leader = Node(words[1]);
  if (!leader.ok()) return leader.status();
  for (size_t i = 3; i < words.size(); ++i) {
    const auto id = Node(words[i]);
    if (!id.ok()) return id.status();
    cluster_->Step(*id,
                   LeaderResigns{.leader = NodeId(*leader), .term = Term(term), .rank = static_cast<uint32_t>(i - 3)});
  }
  return absl::OkStatus();
}

// kernel-append NODE LEADER AFTER TEXT...: the kernel part has accepted one entry for each word.
absl::Status Script::KernelAppend(const Words& words) {
  uint64_t after = 0;
  if (words.size() < 5 || !absl::SimpleAtoi(words[3], &after))
    return Expected("kernel-append NODE LEADER AFTER TEXT...");
  const auto id = Node(words[1]);
  const auto leader = Node(words[2]);
  if (!id.ok() || !leader.ok() || !cluster_->At(*id).log().Has(LogIndex(after))) return Expected("nodes, an index");
  AppendRequest request{.prev_index = LogIndex(after), .prev_term = cluster_->At(*id).log().TermAt(LogIndex(after))};
  const Term term = cluster_->At(*id).term();
  for (size_t i = 4; i < words.size(); ++i) {
    request.entries.push_back({.term = term, .index = LogIndex(after + i - 3), .payload = Payload(words[i])});
  }
  cluster_->Step(
      *id,
      KernelAppended{
          .leader = NodeId(*leader), .term = term, .request = std::move(request), .arrived_ns = cluster_->now_ns()});
  return absl::OkStatus();
}

// kernel-vote NODE TERM CANDIDATE
absl::Status Script::KernelVote(const Words& words) {
  uint64_t term = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[2], &term)) return Expected("kernel-vote NODE TERM CANDIDATE");
  const auto id = Node(words[1]);
  const auto candidate = Node(words[3]);
  if (!id.ok() || !candidate.ok()) return Expected("nodes");
  cluster_->Step(*id, KernelVoted{.term = Term(term), .candidate = NodeId(*candidate)});
  return absl::OkStatus();
}

// kernel-heard NODE LEADER COMMIT
absl::Status Script::KernelHeard(const Words& words) {
  uint64_t commit = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[3], &commit)) return Expected("kernel-heard NODE LEADER COMMIT");
  const auto id = Node(words[1]);
  const auto leader = Node(words[2]);
  if (!id.ok() || !leader.ok()) return Expected("nodes");
  cluster_->Step(*id, hedgerow::raft::KernelHeard{.leader = NodeId(*leader),
                                                  .term = cluster_->At(*id).term(),
                                                  .heard_ns = cluster_->now_ns(),
                                                  .commit = LogIndex(commit)});
  return absl::OkStatus();
}

// kernel-count LEADER MATCH...: of every node, in their order; the leader's own does not matter.
absl::Status Script::KernelCount(const Words& words) {
  const std::vector<NodeId> ids = cluster_->ids();
  if (words.size() != ids.size() + 2) return Expected("kernel-count LEADER MATCH...");
  const auto id = Node(words[1]);
  if (!id.ok()) return id.status();
  KernelCounted counted{.term = cluster_->At(*id).term()};
  for (size_t i = 2; i < words.size(); ++i) {
    uint64_t match = 0;
    if (!absl::SimpleAtoi(words[i], &match)) return Expected("an index");
    const size_t slot = cluster_->At(*id).configuration().SlotOf(ids[i - 2]);
    if (slot == Configuration::kNoSlot) continue;
    counted.members[slot].match = LogIndex(match);
    counted.members[slot].node = ids[i - 2];
  }
  cluster_->Step(*id, counted);
  return absl::OkStatus();
}

absl::Status Script::Status() {
  for (const NodeId id : cluster_->ids()) {
    lines_.push_back(cluster_->Runs(id) ? Describe(id, cluster_->At(id.value())) : absl::StrCat(id.value(), ": down"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> RunScript(absl::string_view text) {
  Script script;
  std::string result;
  int number = 0;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (const absl::string_view line : lines) {
    ++number;
    if (absl::StartsWith(line, "  ")) continue;  // an outcome of former times
    absl::StrAppend(&result, line, "\n");
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> outcome;
    const absl::Status status = script.Run(absl::StrSplit(line, ' ', absl::SkipEmpty()), outcome);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ", \"", line, "\": ", std::string(status.message())));
    }
    for (const std::string& told : outcome) absl::StrAppend(&result, "  ", told, "\n");
  }
  return result;
}

}  // namespace hedgerow::raft
