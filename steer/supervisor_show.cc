// SPDX-License-Identifier: Apache-2.0
//
// What a supervisor reports of its group, and its look at what others do there: whether the kernel still runs the
// group's programs, and whether another process has sockets on the address.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "steer/sock_diag.h"
#include "steer/sockets.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
namespace {

constexpr int kFailing = 4;                // ends in a row, each soon after its start, that are a problem
constexpr int64_t kLook_ns = 300'000'000;  // shortest interval; the slow timer looks each second

}  // namespace

std::vector<Slot*> Supervisor::Slots() {
  std::vector<Slot*> all;
  for (auto& [place, slot] : slots_) all.push_back(&slot);
  return all;
}

MadeSlot& Supervisor::ServingSlot(int number) {
  for (auto& [place, slot] : slots_) {
    if (slot.number == number && slot.role == Role::kServing) return slot;
  }
  std::abort();  // every number is of Serving()
}

void Supervisor::WithSocket(const Slot& slot, Transport transport, const std::function<void(int)>& visit) const {
  if (const int fd = slots_.at(PlaceOf(slot.number, slot.generation)).fd(transport); fd >= 0) visit(fd);
}

bool Supervisor::IsReloading() const {
  return !to_reload_.empty() ||
         std::any_of(slots_.begin(), slots_.end(), [](const auto& each) { return each.second.role == Role::kNext; });
}

std::vector<std::string> Supervisor::Problems() const {
  std::vector<std::string> problems = {takeovers_[0], takeovers_[1], strangers_[0], strangers_[1], reload_problem_};
  for (const auto& [place, slot] : slots_) {
    const std::string worker = absl::StrCat("slot ", slot.number, ": worker ", slot.worker.pid);
    if (slot.role != Role::kServing) continue;
    if (settings_.udp && slot.has_worker() && IsSpoilt(slot.fd(Transport::kUdp))) {
      problems.push_back(absl::StrCat(
          worker, " has connected its UDP socket, or shut it down: sources do not reach it until it ends"));
    }
    if (slot.is_silent) problems.push_back(absl::StrCat(worker, " sends no WATCHDOG=1"));
    if (slot.failures >= kFailing) {
      problems.push_back(absl::StrCat("slot ", slot.number, ": its worker has ended ", slot.failures,
                                      " times in a row soon after its start (", slot.last_exit, ")"));
    }
  }
  return problems;
}

// Those that serve come first: a former listener is shut down, and in no group.
std::vector<int> Supervisor::FdsOf(Transport transport) const {
  std::vector<int> all;
  for (const bool serves : {true, false}) {
    for (const auto& [place, slot] : slots_) {
      if ((slot.role == Role::kServing) == serves && slot.fd(transport) >= 0) all.push_back(slot.fd(transport));
    }
  }
  return all;
}

void Supervisor::LookAround() {
  if (MonotonicNs() < next_look_ns_) return;
  next_look_ns_ = MonotonicNs() + kLook_ns;
  for (auto& [place, slot] : slots_) {
    if (slot.has_worker() && slot.terminated_ns == 0) MendListener(slot);
  }
  for (const Transport transport : settings_.transports()) {
    const std::vector<int> sockets = FdsOf(transport);
    takeovers_[static_cast<size_t>(transport)] = TakeoverOf(transport, sockets);
    strangers_[static_cast<size_t>(transport)] = StrangersOf(transport, sockets);
  }
  LogProblems();
}

// Where another program is in the place of the group's own, that is attached again.
std::string Supervisor::TakeoverOf(Transport transport, const std::vector<int>& sockets) {
  // A connected or shut-down UDP socket is in no reuseport group.
  const auto socket = std::find_if(sockets.begin(), sockets.end(),
                                   [transport](int each) { return transport == Transport::kTcp || !IsSpoilt(each); });
  if (socket == sockets.end()) return "";
  const auto program = kernel_->ProgramOf(*socket);
  if (!program.ok())
    return absl::StrCat("takeover: cannot tell whether the group is ours: ", program.status().message());
  if (*program == kernel_->OwnProgram(transport)) return "";
  const absl::Status attached = kernel_->Attach(transport, *socket);
  return absl::StrCat("takeover: ",
                      *program == HR_STEER_CLASSIC_PROGRAM ? "a classic filter"
                      : *program == 0                      ? "no program"
                                                           : absl::StrCat("the program ", *program),
                      " chose among the ", NameOf(transport), " sockets of ", settings_.listen.ToString(),
                      ", so sources met any worker: the group's own ",
                      attached.ok() ? "is attached again" : attached.message());
}

std::string Supervisor::StrangersOf(Transport transport, const std::vector<int>& sockets) {
  const auto index = static_cast<size_t>(transport);
  auto holders = ListHolders(transport, settings_.listen, false);
  if (!holders.ok() || sockets.empty()) return "";
  std::set<uint32_t> ours, inodes;
  for (const int socket : sockets) ours.insert(InodeOf(socket));
  std::erase_if(*holders, [&ours](const InetSocket& each) { return ours.contains(each.inode); });
  for (const InetSocket& each : *holders) inodes.insert(each.inode);
  if (inodes == std::exchange(stranger_inodes_[index], inodes)) return strangers_[index];
  if (holders->empty()) return "";
  return absl::StrCat("strangers: ", DescribeHolders(*holders), " also has a ", NameOf(transport), " socket on ",
                      settings_.listen.ToString(), ", which gets nothing");
}

}  // namespace hedgerow::steer
