// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/identity.h"

#include <zlib.h>

#include <array>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"

namespace hedgerow::storage {
namespace {

constexpr char kTitle[] = "hedgerow identity 1\n";
constexpr char kChecksumWord[] = "crc32 ";
constexpr char kNone[] = "-";
constexpr std::array<const char*, 4> kPhases = {"ready", "restoring", "restored", "moving"};

std::string PathOf(const std::string& folder) { return absl::StrCat(folder, "/", kIdentityFile); }

std::string LastLine(std::string_view lines) {
  const auto* const bytes = reinterpret_cast<const Bytef*>(lines.data());
  return absl::StrFormat("%s%08x\n", kChecksumWord, crc32(0, bytes, static_cast<uInt>(lines.size())));
}

// Takes the lines off one by one, each of which has a name and so many words.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(absl::StrSplit(std::string(text), '\n', absl::SkipEmpty())) {}

  // Nothing: the next line is another one.
  std::vector<std::string> Take(std::string_view name, size_t words) {
    if (next_ == rest_.size()) return {};
    std::vector<std::string> line = absl::StrSplit(rest_[next_], ' ');
    if (line.size() != words + 1 || line[0] != name) return {};
    ++next_;
    line.erase(line.begin());
    return line;
  }
  bool TakeNumber(std::string_view name, uint64_t& number) {
    const std::vector<std::string> line = Take(name, 1);
    return !line.empty() && absl::SimpleAtoi(line[0], &number);
  }
  bool TakeHex(std::string_view name, uint64_t& number) {
    const std::vector<std::string> line = Take(name, 1);
    return !line.empty() && absl::SimpleHexAtoi(line[0], &number);
  }
  bool TakeNode(std::string_view name, raft::NodeId& node) {
    uint64_t number = 0;
    if (!TakeNumber(name, number)) return false;
    node = raft::NodeId(number);
    return true;
  }
  bool done() const { return next_ == rest_.size(); }

 private:
  std::vector<std::string> rest_;
  size_t next_ = 0;
};

bool TakePhase(Lines& lines, Identity& identity) {
  const std::vector<std::string> line = lines.Take("phase", 1);
  for (size_t phase = 0; !line.empty() && phase < kPhases.size(); ++phase) {
    if (line[0] != kPhases[phase]) continue;
    identity.phase = static_cast<Identity::Phase>(phase);
    const bool moves = identity.phase == Identity::Phase::kMoving;
    return !moves || (lines.TakeNode("moved_from", identity.moved_from) && identity.moved_from.IsSet());
  }
  return false;
}

// "kernel BOOT_ID held|lost", or "kernel - held".
bool TakeKernel(Lines& lines, Identity& identity) {
  const std::vector<std::string> line = lines.Take("kernel", 2);
  if (line.empty() || line[0].empty() || (line[1] != "held" && line[1] != "lost")) return false;
  if (line[0] != kNone) identity.kernel_holds = line[0];
  identity.kernel_lost = line[1] == "lost";
  return true;
}

bool TakeCopies(Lines& lines, Identity& identity) {
  for (std::vector<std::string> line = lines.Take("member", 2); !line.empty(); line = lines.Take("member", 2)) {
    uint64_t node = 0;
    uint64_t copy = 0;
    if (!absl::SimpleAtoi(line[0], &node) || !absl::SimpleHexAtoi(line[1], &copy)) return false;
    if (node == 0 || copy == 0 || !identity.copies.emplace(raft::NodeId(node), copy).second) return false;
  }
  return true;
}

absl::Status IdentityDamaged(const std::string& folder, const char* what) {
  return DamagedError(folder, absl::StrCat("its file `", kIdentityFile, "`, which says whose folder it is, ", what));
}

}  // namespace

std::string EncodeIdentity(const Identity& identity) {
  std::string lines = absl::StrFormat(
      "cluster %d\nnode %d\nconfigured %d\nepoch %d\nbeginning %016x\nlog %016x\ncopy %016x\nstarts %d\n",
      identity.cluster_id, identity.node.value(), identity.configured.value(), identity.generation.epoch,
      identity.generation.nonce, identity.log_uuid, identity.copy_id, identity.starts);
  absl::StrAppend(&lines, "phase ", kPhases[static_cast<size_t>(identity.phase)], "\n");
  if (identity.phase == Identity::Phase::kMoving)
    absl::StrAppend(&lines, "moved_from ", identity.moved_from.value(), "\n");
  absl::StrAppend(&lines, "kernel ", identity.kernel_holds.empty() ? kNone : identity.kernel_holds, " ",
                  identity.kernel_lost ? "lost" : "held", "\n");
  if (identity.unknown_to.has_value()) absl::StrAppend(&lines, "unknown_to ", identity.unknown_to->value(), "\n");
  for (const auto& [node, copy] : identity.copies)
    absl::StrAppendFormat(&lines, "member %d %016x\n", node.value(), copy);
  return absl::StrCat(kTitle, lines, LastLine(lines));
}

std::optional<Identity> DecodeIdentity(std::string_view text) {
  if (!text.starts_with(kTitle)) return std::nullopt;
  text.remove_prefix(sizeof(kTitle) - 1);
  const size_t end = text.rfind(kChecksumWord);
  if (end == std::string_view::npos || text.substr(end) != LastLine(text.substr(0, end))) return std::nullopt;
  Lines lines(text.substr(0, end));
  Identity identity;
  const bool whole = lines.TakeNumber("cluster", identity.cluster_id) && lines.TakeNode("node", identity.node) &&
                     lines.TakeNode("configured", identity.configured) &&
                     lines.TakeNumber("epoch", identity.generation.epoch) &&
                     lines.TakeHex("beginning", identity.generation.nonce) && lines.TakeHex("log", identity.log_uuid) &&
                     lines.TakeHex("copy", identity.copy_id) && lines.TakeNumber("starts", identity.starts) &&
                     TakePhase(lines, identity) && TakeKernel(lines, identity);
  if (!whole || !identity.node.IsSet()) return std::nullopt;
  raft::NodeId by;
  if (lines.TakeNode("unknown_to", by)) identity.unknown_to = by;
  if (!TakeCopies(lines, identity) || !lines.done()) return std::nullopt;
  return identity;
}

absl::StatusOr<std::optional<Identity>> ReadIdentity(const std::string& folder) {
  const absl::StatusOr<std::optional<std::string>> text = ReadIfThere(PathOf(folder));
  if (!text.ok()) {
    return absl::InternalError(absl::StrCat(
        text.status().message(),
        ". It says whose folder this is, so the node does not start without it. It belongs to "
        "the user that the node runs as (rights 0600): correct its owner or rights, and start the node again"));
  }
  if (!text->has_value()) return std::nullopt;
  if ((*text)->empty()) return IdentityDamaged(folder, "is empty");
  std::optional<Identity> identity = DecodeIdentity(**text);
  if (!identity.has_value()) return IdentityDamaged(folder, "is not what was written to it");
  return identity;
}

absl::Status WriteIdentity(const std::string& folder, const Identity& identity) {
  return ReplaceSynced(PathOf(folder), EncodeIdentity(identity));
}

absl::Status CreateIdentity(const std::string& folder, const Identity& identity) {
  if (absl::Status status = MakeFolder(folder); !status.ok()) return status;
  return CreateSynced(PathOf(folder), EncodeIdentity(identity));
}

absl::Status CheckOwner(const std::string& folder, const Identity& identity, uint64_t cluster_id, raft::NodeId called) {
  if (identity.cluster_id == cluster_id && (identity.configured == called || identity.node == called))
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the folder ", folder, " is that of node ", identity.node.value(), " of cluster ",
                   identity.cluster_id, ", and the configuration is that of node ", called.value(), " of cluster ",
                   cluster_id, ": correct data_dir, node or cluster_id in the configuration"));
}

}  // namespace hedgerow::storage
