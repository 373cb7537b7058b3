// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/rejoin.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"

namespace hedgerow::node {
namespace {

constexpr char kRejoined[] = "rejoined";
constexpr char kRejoining[] = "rejoining";  // the same, while what was there is moved
constexpr char kLostAs[] = "lost-as-";

std::string In(const std::string& data_dir, const std::string& name) {
  return absl::StrCat(data_dir, "/", name);
}

struct Said {
  uint64_t was = 0;
  Rejoin rejoin;
};

// One line: who it was, who it is, epoch, beginning, and a word without which it was cut short.
std::string LineOf(const Said& said) {
  return absl::StrCat(said.was, " ", said.rejoin.as.value(), " ", said.rejoin.origin.epoch, " ",
                      said.rejoin.origin.beginning, " end\n");
}

absl::StatusOr<Said> ReadLine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Said said;
  uint64_t as = 0;
  if (words.size() != 5 || words[4] != "end\n" || !absl::SimpleAtoi(words[0], &said.was) ||
      !absl::SimpleAtoi(words[1], &as) || !absl::SimpleAtoi(words[2], &said.rejoin.origin.epoch) ||
      !absl::SimpleAtoi(words[3], &said.rejoin.origin.beginning) || said.was == 0 || as == 0) {
    return absl::DataLossError(
        absl::StrCat("the file ", path, ", which says who this node has become, is none"));
  }
  said.rejoin.as = raft::NodeId(as);
  return said;
}

// Can be done again, from wherever it was cut short.
absl::Status MoveAside(const std::string& data_dir, uint64_t was) {
  const std::string aside = In(data_dir, absl::StrCat(kLostAs, was));
  if (absl::Status status = storage::MakeFolder(aside); !status.ok()) return status;
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir, error)) {
    const std::string name = entry.path().filename();
    if (name != kRejoining && name.compare(0, sizeof(kLostAs) - 1, kLostAs) != 0) names.push_back(name);
  }
  if (error) return storage::FromErrno(data_dir, "read", error.value());
  for (const std::string& name : names) {
    const std::string from = In(data_dir, name);
    if (rename(from.c_str(), In(aside, name).c_str()) != 0) return storage::FromErrno(from, "move", errno);
  }
  if (absl::Status status = storage::SyncFolder(aside); !status.ok()) return status;
  return storage::SyncFolder(data_dir);
}

absl::Status FinishRejoin(const std::string& data_dir) {
  const std::string path = In(data_dir, kRejoining);
  const absl::StatusOr<Said> said = ReadLine(path);
  // It was cut short before anything was moved: the node is what it was.
  if (!said.ok())
    return unlink(path.c_str()) == 0 ? absl::OkStatus() : storage::FromErrno(path, "remove", errno);
  if (absl::Status status = MoveAside(data_dir, said->was); !status.ok()) return status;
  const std::string done = In(data_dir, kRejoined);
  if (rename(path.c_str(), done.c_str()) != 0) return storage::FromErrno(done, "make", errno);
  return storage::SyncFolder(data_dir);
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

absl::Status BeginRejoin(const std::string& data_dir, raft::NodeId was, const Rejoin& rejoin) {
  const Said said = {.was = was.value(), .rejoin = rejoin};
  if (absl::Status status = storage::WriteSynced(In(data_dir, kRejoining), LineOf(said)); !status.ok())
    return status;
  return FinishRejoin(data_dir);
}

absl::Status FollowRejoin(NodeConfig& config) {
  if (IsThere(In(config.data_dir, kRejoining))) {
    if (absl::Status status = FinishRejoin(config.data_dir); !status.ok()) return status;
  }
  const std::string path = In(config.data_dir, kRejoined);
  if (!IsThere(path)) return absl::OkStatus();
  const absl::StatusOr<Said> said = ReadLine(path);
  if (!said.ok()) return said.status();
  const raft::NodeId as = said->rejoin.as;
  const raft::NodeId called = config.self;
  // The file may still name somebody who had the id and was removed long ago.
  std::erase_if(config.members,
                [&](const MemberConfig& member) { return member.id == as && member.id != called; });
  for (MemberConfig& member : config.members) {
    if (member.id == called) member.id = as;
  }
  std::sort(config.members.begin(), config.members.end(),
            [](const MemberConfig& a, const MemberConfig& b) { return a.id < b.id; });
  config.self = as;
  config.join = true;
  config.cluster_epoch = said->rejoin.origin.epoch;
  config.beginning = said->rejoin.origin.beginning;
  return absl::OkStatus();
}

}  // namespace hedgerow::node
