// SPDX-License-Identifier: Apache-2.0
#include "steer/group_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "operate/log.h"
#include "steer/sock_diag.h"
#include "steer/socket_state.h"

namespace hedgerow::steer {
namespace {

void Replace(std::string& problem, std::string now) {
  if (problem.empty() && !now.empty()) LogError(now);
  if (!problem.empty() && now.empty()) LogInfo("over: ", problem);
  problem = std::move(now);
}

}  // namespace

std::string GroupWatch::Takeover(Transport transport, int socket) const {
  const auto program = kernel_->ProgramOf(socket);
  if (!program.ok())
    return absl::StrCat("takeover: cannot tell whether the group is ours: ", program.status().message());
  if (*program == kernel_->OwnProgram(transport)) return "";
  const std::string what = *program == HR_STEER_CLASSIC_PROGRAM ? "a classic filter"
                           : *program == 0                      ? "no program"
                                                                : absl::StrCat("the program ", *program);
  return absl::StrCat("takeover: the ", NameOf(transport), " sockets of ", settings_.listen.ToString(), " have ", what,
                      " in place of the group's own (", kernel_->OwnProgram(transport),
                      "), so sources meet any worker. `hedgerow steer reattach --name ", settings_.places.name,
                      "` puts the group's own back");
}

std::string GroupWatch::Strangers(Transport transport, const std::vector<int>& sockets) {
  const auto index = static_cast<size_t>(transport);
  auto holders = ListHolders(transport, settings_.listen, false);
  if (!holders.ok()) return "";
  std::set<uint32_t> ours;
  for (const int socket : sockets) ours.insert(InodeOf(socket));
  std::erase_if(*holders, [&ours](const InetSocket& each) { return ours.contains(each.inode); });
  std::set<uint32_t> inodes;
  for (const InetSocket& each : *holders) inodes.insert(each.inode);
  if (inodes == std::exchange(stranger_inodes_[index], inodes)) return strangers_[index];
  if (holders->empty()) return "";
  return absl::StrCat("strangers: ", DescribeHolders(*holders), " also has a ", NameOf(transport), " socket on ",
                      settings_.listen.ToString(), ", which gets nothing");
}

void GroupWatch::Look(Transport transport, const std::vector<int>& sockets) {
  if (sockets.empty()) return;
  const auto index = static_cast<size_t>(transport);
  // A connected or shut-down UDP socket is in no reuseport group.
  const auto socket = std::find_if(sockets.begin(), sockets.end(),
                                   [transport](int each) { return transport == Transport::kTcp || !IsSpoilt(each); });
  Replace(takeovers_[index], socket == sockets.end() ? "" : Takeover(transport, *socket));
  Replace(strangers_[index], Strangers(transport, sockets));
}

std::vector<std::string> GroupWatch::problems() const {
  std::vector<std::string> all;
  for (const auto* kind : {&takeovers_, &strangers_}) {
    for (const std::string& problem : *kind) {
      if (!problem.empty()) all.push_back(problem);
    }
  }
  return all;
}

}  // namespace hedgerow::steer
