// SPDX-License-Identifier: Apache-2.0
#include "steer/adopted_group.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operate/log.h"
#include "steer/leftovers.h"
#include "steer/process.h"
#include "steer/record.h"
#include "steer/socket_state.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kMs = 1'000'000;
// How often the daemon's sockets are listed: two dumps of sock_diag, which cost some 50 us where nothing has changed.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr int64_t kPins_ms = 250;

absl::Status MakeFolder(const Places& places) {
  std::error_code error;
  std::filesystem::create_directories(places.folder(), error);
  if (error || chmod(places.folder().c_str(), 0711) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", places.folder(), ": ", error ? error.message() : strerror(errno)));
  }
  return absl::OkStatus();
}

// As the user whose sockets the group has: the kernel lets no other into it.
class AsUser {
 public:
  explicit AsUser(uint32_t uid) : own_(geteuid()) { changed_ = uid != own_ && seteuid(uid) == 0; }
  ~AsUser() {
    if (changed_ && seteuid(own_) != 0) LogError("cannot take back the user id ", own_);
  }

 private:
  uid_t own_;
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdoptedGroup>> AdoptedGroup::Start(EventLoop* loop, const Settings& settings, const SocketSearch& search,
                                                                  bool mounted_bpffs) {
  std::unique_ptr<AdoptedGroup> group(new AdoptedGroup(loop, settings, mounted_bpffs));
  if (const absl::Status adopted = group->Adopt(search); !adopted.ok()) return adopted;
  const auto timer = loop->StartTimer(kLook, [raw = group.get()] { raw->Tick(); });
  if (!timer.ok()) return timer.status();
  group->Save();
  return group;
}

absl::Status AdoptedGroup::Adopt(SocketSearch search) {
  const auto found = FindWorkers(search);
  if (!found.ok()) return found.status();
  if (const absl::Status alone = RefuseOthers(*found); !alone.ok()) return alone;
  const auto has = [&](auto member) {
    return std::any_of(found->workers.begin(), found->workers.end(), [&](const AdoptedWorker& each) { return (each.*member).has_value(); });
  };
  settings_.udp = has(&AdoptedWorker::udp);
  settings_.tcp = has(&AdoptedWorker::tcp);
  const std::vector<Transport> transports = settings_.transports();
  search.transports = {transports.begin(), transports.end()};  // a later socket of the other transport is not the group's

  const Leftovers left = LookForLeftovers(settings_.places, settings_.bpffs);
  if (left.has_record && left.record.mode() != "adopt" && (left.has_keeper || !left.workers.empty())) {
    return absl::FailedPreconditionError(absl::StrCat("group ", settings_.places.name, " was left by `hedgerow steer run`, with workers: start that again, or `hedgerow "
                                                      "steer clean --name ", settings_.places.name, "` removes it"));
  }
  if (left.has_pins && left.record.mode() == "adopt") GiveBack(settings_.bpffs, settings_.places.name, search);
  if (left.any()) {
    if (const absl::Status removed = RemoveLeftovers(settings_.places, left); !removed.ok()) return removed;
  }
  if (const absl::Status folder = MakeFolder(settings_.places); !folder.ok()) return folder;
  shares_.resize(found->workers.size());
  for (Share& share : shares_) share.since_ns = MonotonicNs();
  if (const absl::Status made = MakeKernel(shares_.size()); !made.ok()) return made;
  if (const absl::Status made = MakeSinks(found->uid); !made.ok()) return made;
  if (settings_.tcp) {
    if (const absl::Status pinned = PinConnections(*kernel_, settings_, *found); !pinned.ok()) return pinned;
  }
  auto slots = AdoptedSlots::Adopt(kernel_.get(), search, *found);
  if (!slots.ok()) return slots.status();
  slots_ = *std::move(slots);
  for (const std::string& guess : Guesses(*found)) LogWarning(guess);
  return OpenTable();
}
