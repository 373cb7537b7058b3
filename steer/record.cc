// SPDX-License-Identifier: Apache-2.0
#include "steer/record.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/json.h"
#include "net/unique_fd.h"
#include "steer/kernel_group.h"
#include "steer/sock_diag.h"

namespace hedgerow::steer {
namespace {

constexpr int kEnd_ms = 5000;  // from SIGTERM to SIGKILL

absl::Status EndProcess(const Process& process) {
  const auto pidfd = OpenProcess(process);
  if (absl::IsNotFound(pidfd.status())) return absl::OkStatus();
  if (!pidfd.ok()) return pidfd.status();
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (const absl::Status sent = Signal(*pidfd, signal); !sent.ok() || WaitForEnd(*pidfd, kEnd_ms)) return sent;
  }
  return absl::DeadlineExceededError(absl::StrCat("pid ", process.pid, " does not end"));
}

// Without a readable record the sockets in the pinned arrays show the workers.
std::vector<Process> WorkersOf(const Places& places, const std::string& bpffs) {
  const auto kernel = KernelGroup::Open(bpffs, places.name);
  if (!kernel.ok()) return {};
  std::set<uint64_t> cookies;
  std::set<uint32_t> inodes;
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    for (int place = 0; place < HR_STEER_PLACES; ++place)
      cookies.insert((*kernel)->CookieOf(transport, place).value_or(0));
    const auto sockets = ListSockets(transport, 0, 1u << (transport == Transport::kUdp ? TCP_CLOSE : TCP_LISTEN));
    if (!sockets.ok()) return {};
    for (const InetSocket& each : *sockets) {
      if (each.inode != 0 && cookies.contains(each.cookie)) inodes.insert(each.inode);
    }
  }
  return ProcessesWith(inodes,
                       [others = SelfAndAncestors()](const Process& each) { return !others.contains(each.pid); });
}

}  // namespace

absl::Status SaveRecord(const Places& places, const v1::Record& record) {
  const std::string path = places.record();
  const std::string fresh = path + ".new";
  const std::string text = ToJson(record);
  const net::UniqueFd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Record> LoadRecord(const Places& places) {
  std::ifstream file(places.record());
  if (!file) {
    if (errno == EACCES)
      return absl::PermissionDeniedError(absl::StrCat("this user may not read ", places.record(), ": root may"));
    return absl::NotFoundError(absl::StrCat("no group ", places.name, " in ", places.run_dir));
  }
  const std::string text(std::istreambuf_iterator<char>(file), {});
  v1::Record record;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &record, options);
  if (!parsed.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(places.record(), " cannot be read: `hedgerow steer clean --name ",
                                                      places.name, "` removes what is left of the group"));
  }
  return record;
}

Leftovers LookForLeftovers(const Places& places, const std::string& bpffs) {
  Leftovers found;
  const auto record = LoadRecord(places);
  std::error_code error;
  found.has_record = record.ok() || std::filesystem::exists(places.record(), error);
  if (record.ok()) found.record = *record;
  found.bpffs = record.ok() && !record->bpffs().empty() ? record->bpffs() : bpffs;
  // Pins of another layout count as well.
  found.has_pins = std::filesystem::exists(absl::StrCat(found.bpffs, "/hedgerow-steer/", places.name), error);
  for (const v1::RecordedSlot& slot : found.record.slots()) {
    // The processes of an adopted daemon are not the group's to end.
    const Process worker = FromRecord(slot.worker());
    if (found.record.mode() != "adopt" && Runs(worker)) found.workers.push_back(worker);
  }
  if (found.has_record && !record.ok() && found.has_pins) found.workers = WorkersOf(places, found.bpffs);
  found.adoptable =
      record.ok() && record->mode() == "run" && !record->slots().empty() && found.has_pins && found.bpffs == bpffs;
  return found;
}

absl::StatusOr<Leftovers> FindLeftovers(const Places& places, const std::string& bpffs) {
  Leftovers found = LookForLeftovers(places, bpffs);
  if (found.adoptable || found.workers.empty()) return found;
  std::vector<std::string> lacking;
  if (found.has_record && found.record.mode().empty())
    lacking.push_back(absl::StrCat("a readable record (", places.record(), ")"));
  if (!found.has_pins) lacking.push_back(absl::StrCat("its pins in ", found.bpffs));
  if (found.bpffs != bpffs) lacking.push_back(absl::StrCat("the same --bpffs (", found.bpffs, ")"));
  return absl::FailedPreconditionError(absl::StrCat(
      "group ", places.name, " was left by a dead supervisor and cannot be taken over, for want of ",
      absl::StrJoin(lacking, " and "), "; ", found.workers.size(), " of its workers run: `hedgerow steer clean --name ",
      places.name, "` ends them and removes what is left"));
}

absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const Places& places, const Leftovers& found) {
  std::vector<std::string> removed;
  for (const Process& worker : found.workers) {
    if (const absl::Status ended = EndProcess(worker); !ended.ok()) return ended;
    removed.push_back(absl::StrCat("worker ", worker.pid));
  }
  if (found.has_pins) {
    if (const absl::Status done = KernelGroup::Remove(found.bpffs, places.name); !done.ok()) return done;
    removed.push_back(absl::StrCat("pins in ", found.bpffs, "/hedgerow-steer/", places.name));
  }
  std::error_code error;
  if (std::filesystem::exists(places.folder(), error)) removed.push_back(places.folder());
  RemoveFolder(places);
  return removed;
}

void RemoveFolder(const Places& places) {
  for (const std::string& file :
       {places.admin(), places.monitor(), places.notify(), places.record(), places.record() + ".new"}) {
    unlink(file.c_str());
  }
  rmdir(places.folder().c_str());
}

}  // namespace hedgerow::steer
