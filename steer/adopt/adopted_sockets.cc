// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/adopted_sockets.h"

#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "steer/sock_diag.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

std::string Device(uint32_t ifindex) {
  char name[IF_NAMESIZE];
  if (ifindex == 0) return "no device";
  return if_indextoname(ifindex, name) != nullptr ? absl::StrCat("device ", name) : absl::StrCat("device ", ifindex);
}

struct Holder {
  Process process{};
  int descriptor = -1;
  bool polls = false;
};

struct Candidate {
  Transport transport = Transport::kUdp;
  InetSocket socket{};
  bool matches = false;           // the address is the wanted one; the others only serve messages
  std::vector<Holder> holders{};  // of the named family, oldest first
  std::vector<Holder> others{};
  Holder worker{};
  bool certain = true;

  int descriptor() const { return holders.front().descriptor; }
};

struct Scan {
  std::vector<Process> processes{};  // all
  std::vector<Candidate> candidates{};
  std::map<pid_t, HeldSockets> held{};
};

// Unconnected UDP sockets and listening TCP sockets of the port, at any address.
absl::StatusOr<std::vector<Candidate>> ListCandidates(const SocketSearch& search) {
  std::vector<Candidate> candidates;
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    if (!search.transports.empty() && !search.transports.contains(transport)) continue;
    const auto sockets =
        ListSockets(transport, search.listen.port, 1u << (transport == Transport::kUdp ? TCP_CLOSE : TCP_LISTEN));
    if (!sockets.ok()) return sockets.status();
    for (const InetSocket& socket : *sockets) {
      if (socket.inode == 0) continue;  // closing
      const bool matches = socket.local == search.listen.address && socket.family == search.listen.address.family();
      candidates.push_back({.transport = transport, .socket = socket, .matches = matches});
    }
  }
  return candidates;
}

// `matching`: only of those at the wanted address.
std::set<uint32_t> Inodes(const std::vector<Candidate>& candidates, bool matching) {
  std::set<uint32_t> inodes;
  for (const Candidate& candidate : candidates) {
    if (candidate.matches || !matching) inodes.insert(candidate.socket.inode);
  }
  return inodes;
}

bool Contains(const std::vector<Process>& processes, pid_t pid) {
  return std::any_of(processes.begin(), processes.end(), [pid](const Process& each) { return each.pid == pid; });
}

// Where no pid is named and the caller does not choose: all processes of the one program that has the sockets.
absl::StatusOr<std::vector<pid_t>> OneProgram(const SocketSearch& search, const std::vector<Process>& holders,
                                              bool has_sockets) {
  if (holders.empty() && has_sockets) {
    return absl::PermissionDeniedError(
        absl::StrCat("which process has ", search.listen.ToString(),
                     " open is seen with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH only (root has them)"));
  }
  if (holders.empty()) {
    return absl::NotFoundError(absl::StrCat("no process has ", search.listen.ToString(),
                                            " open: start the daemon first, or compare the address with what "
                                            "`ss -lntup` shows"));
  }
  std::vector<pid_t> pids;
  std::map<std::string, std::string> programs;
  for (const Process& holder : holders) {
    pids.push_back(holder.pid);
    programs.emplace(ProgramOf(holder.pid), ToString(holder));
  }
  if (programs.size() == 1) return pids;
  return absl::FailedPreconditionError(absl::StrCat(
      "several programs have ", search.listen.ToString(),
      " open: ", absl::StrJoin(programs, ", ", [](std::string* out, const auto& each) { out->append(each.second); }),
      "; which daemon? Name its pid"));
}

// Fills `search.pids` where none is named.
absl::StatusOr<Scan> Look(SocketSearch& search) {
  Scan scan;
  auto candidates = ListCandidates(search);
  if (!candidates.ok()) return candidates.status();
  scan.candidates = *std::move(candidates);
  auto processes = ListProcesses();
  if (!processes.ok()) return processes.status();
  scan.processes = *std::move(processes);
  for (const pid_t pid : search.pids) {
    if (!Contains(scan.processes, pid)) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  }
  const std::set<uint32_t> inodes = Inodes(scan.candidates, false), wanted = Inodes(scan.candidates, true);
  std::vector<Process> named = WithDescendants(scan.processes, search.pids), holders;
  for (const Process& process : scan.processes) {
    const bool is_named = Contains(named, process.pid);
    if (!is_named && process.pid == getpid()) continue;  // OpenSocket may be in use
    auto held = SocketsOf(process, inodes);
    if (is_named && absl::IsPermissionDenied(held.status())) return held.status();
    if (!held.ok() || held->descriptors.empty()) continue;
    if (std::any_of(held->descriptors.begin(), held->descriptors.end(),
                    [&wanted](const auto& each) { return wanted.contains(each.first); }))
      holders.push_back(process);
    scan.held.emplace(process.pid, *std::move(held));
  }
  if (search.pids.empty()) {
    auto pids = search.choose ? search.choose(holders) : OneProgram(search, holders, !wanted.empty());
    if (!pids.ok()) return pids.status();
    search.pids = *std::move(pids);
    named = WithDescendants(scan.processes, search.pids);
  }
  for (const Process& process : scan.processes) {
    const auto held = scan.held.find(process.pid);
    for (size_t i = 0; held != scan.held.end() && i < scan.candidates.size(); ++i) {
      Candidate& candidate = scan.candidates[i];
      const auto descriptor = held->second.descriptors.find(candidate.socket.inode);
      if (descriptor == held->second.descriptors.end()) continue;
      const bool polls = std::any_of(held->second.polled.begin(), held->second.polled.end(),
                                     [&](const auto& set) { return set.contains(candidate.socket.inode); });
      (Contains(named, process.pid) ? candidate.holders : candidate.others)
          .push_back({.process = process, .descriptor = descriptor->second, .polls = polls});
    }
  }
  return scan;
}

bool IsInOtherNamespace(pid_t pid) {
  struct stat own {
  }, other{};
  return stat("/proc/thread-self/ns/net", &own) == 0 &&
         stat(absl::StrCat("/proc/", pid, "/ns/net").c_str(), &other) == 0 &&
         (own.st_ino != other.st_ino || own.st_dev != other.st_dev);
}

std::string Wanted(const SocketSearch& search) {
  if (search.transports.size() != 1) return "UDP or listening TCP socket";
  return *search.transports.begin() == Transport::kUdp ? "UDP socket" : "listening TCP socket";
}

// Each named process, or one that descends from it, holds a socket of the address and port.
absl::Status CheckNamed(const SocketSearch& search, const Scan& scan) {
  for (const pid_t pid : search.pids) {
    std::set<std::string> elsewhere;
    bool found = false;
    const std::vector<Process> family = WithDescendants(scan.processes, {pid});
    for (const Candidate& candidate : scan.candidates) {
      if (std::none_of(candidate.holders.begin(), candidate.holders.end(),
                       [&](const Holder& each) { return Contains(family, each.process.pid); }))
        continue;
      found |= candidate.matches;
      if (!candidate.matches) {
        elsewhere.insert(absl::StrCat(NameOf(candidate.transport), " ",
                                      Listen{candidate.socket.local, search.listen.port}.ToString()));
      }
    }
    // `pidof` names helpers beside the processes that started them.
    std::vector<pid_t> others = search.pids;
    std::erase(others, pid);
    if (found || family.empty() || Contains(WithDescendants(scan.processes, others), pid)) continue;
    const std::string what = absl::StrCat("process ", ToString(family.front()), " has no ", Wanted(search), " of ",
                                          search.listen.ToString());
    if (IsInOtherNamespace(pid)) {
      return absl::FailedPreconditionError(
          absl::StrCat(what, " in this network namespace, and runs in another one: nsenter --net=/proc/", pid,
                       "/ns/net hedgerow steer adopt ..."));
    }
    return absl::NotFoundError(
        elsewhere.empty() ? what
                          : absl::StrCat(what, "; it has ", absl::StrJoin(elsewhere, ", "), ": name that address"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const Candidate& candidate, const SocketSearch& search) {
  const Holder& holder = candidate.holders.front();
  const auto socket = DescriptorOf(holder.process.pid, holder.descriptor);
  if (!socket.ok()) return socket.status();
  const int on = OptionOf<int>(socket->get(), SOL_SOCKET, SO_REUSEPORT);
  if (OptionOf<int>(socket->get(), SOL_SOCKET, SO_PROTOCOL) == IPPROTO_MPTCP) {
    return absl::FailedPreconditionError(absl::StrCat(
        "process ", ToString(holder.process), " listens by MPTCP on ", search.listen.ToString(),
        ", and the kernel chooses by a program among plain TCP sockets only. Switch MPTCP off in the daemon (Go: "
        "GODEBUG=multipathtcp=0), adopt its UDP sockets (--transport udp), or start it by `hedgerow steer run` with `bind`"));
  }
  if (on != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the ", NameOf(candidate.transport), " socket ", search.listen.ToString(), " of process ",
      ToString(holder.process),
      " has no SO_REUSEPORT, so its daemon serves this port by one process. Daemons that can do more set it (docs/steer.md), and "
      "those that take LISTEN_FDS are started by `hedgerow steer run`"));
}

// The kernel puts sockets of one address, port, user and device into a group of their own.
absl::Status CheckOneGroup(const std::vector<Candidate>& sockets) {
  const Candidate& first = sockets.front();
  for (const Candidate& each : sockets) {
    if (each.socket.uid != first.socket.uid) {
      return absl::FailedPreconditionError(absl::StrCat("sockets of different users: that of process ",
                                                        ToString(first.worker.process), " is of uid ", first.socket.uid,
                                                        ", that of ", ToString(each.worker.process), " of uid ",
                                                        each.socket.uid, ". The kernel spreads nothing between users"));
    }
    if (each.socket.ifindex != first.socket.ifindex) {
      return absl::FailedPreconditionError(
          absl::StrCat("sockets that are bound to different devices: that of process ", ToString(first.worker.process),
                       " to ", Device(first.socket.ifindex), ", that of ", ToString(each.worker.process), " to ",
                       Device(each.socket.ifindex), ". Adopt those of one device"));
    }
  }
  return absl::OkStatus();
}

// The one process that holds a socket, or that polls it. The kernel selects sockets, so where neither decides, only the
// name that is shown is in doubt.
void NameWorkers(std::vector<Candidate>& sockets) {
  for (Candidate& candidate : sockets) {
    std::vector<Holder> readers = candidate.holders;
    if (readers.size() > 1) std::erase_if(readers, [](const Holder& each) { return !each.polls; });
    candidate.certain = readers.size() == 1;
    candidate.worker = candidate.certain ? readers.front() : candidate.holders.front();
  }
}

bool PolledTogether(const HeldSockets& held, const Candidate& a, const Candidate& b) {
  return std::any_of(held.polled.begin(), held.polled.end(),
                     [&](const auto& set) { return set.contains(a.socket.inode) && set.contains(b.socket.inode); });
}

std::string Descriptors(const std::vector<const Candidate*>& sockets) {
  return absl::StrJoin(sockets, ", ",
                       [](std::string* out, const Candidate* each) { absl::StrAppend(out, each->descriptor()); });
}

using BothTransports = std::array<std::vector<const Candidate*>, 2>;

// One process's sockets: the threads of some daemons have one pair each.
absl::Status PairUp(const SocketSearch& search, const HeldSockets& held, BothTransports own, bool both,
                    std::vector<AdoptedWorker>& workers) {
  for (auto& sockets : own) {
    std::sort(sockets.begin(), sockets.end(), [](auto* a, auto* b) { return a->descriptor() < b->descriptor(); });
  }
  auto &udp = own[0], &tcp = own[1];
  const Process& process = (udp.empty() ? tcp : udp).front()->worker.process;
  const auto refused = [&](const std::string& what, absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat("process ", ToString(process), " has ", what, " of ",
                                                      search.listen.ToString(), ": ", why,
                                                      ", or adopt one transport (--transport udp, --transport tcp)"));
  };
  if (both && udp.size() != tcp.size()) {
    return refused(
        absl::StrCat(udp.size(), " UDP and ", tcp.size(), " listening TCP sockets"),
        "a source would meet one worker on both only if each had one of each. Set the daemon's numbers of UDP and TCP workers alike");
  }
  for (size_t i = 0; i < std::max(udp.size(), tcp.size()); ++i) {
    if (udp.size() > 1 && i < tcp.size()) {
      const auto here = tcp.begin() + static_cast<ptrdiff_t>(i);
      const auto partner =
          std::find_if(here, tcp.end(), [&](const Candidate* each) { return PolledTogether(held, *udp[i], *each); });
      if (partner == tcp.end()) {
        return refused(absl::StrCat("the UDP sockets ", Descriptors(udp), " and the TCP sockets ", Descriptors(tcp)),
                       "no epoll set shows which of them belong together. Start one process for each worker");
      }
      std::iter_swap(here, partner);
    }
    AdoptedWorker worker{.process = process};
    for (const auto& [sockets, socket] : {std::pair(&udp, &worker.udp), {&tcp, &worker.tcp}}) {
      if (i >= sockets->size()) continue;
      const Candidate& each = *(*sockets)[i];
      *socket = AdoptedSocket{each.socket.cookie, each.worker.process.pid, each.worker.descriptor};
      worker.certain &= each.certain;
    }
    workers.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AdoptedWorker>> PairAll(const SocketSearch& search, const Scan& scan,
                                                   const std::vector<Candidate>& sockets) {
  std::map<size_t, BothTransports> of_slot;
  std::map<std::pair<uint64_t, pid_t>, BothTransports> of_process;  // by start time and pid
  std::set<Transport> found;
  for (const Candidate& candidate : sockets) {
    const auto slot = search.slots.find(candidate.socket.cookie);
    if (slot != search.slots.end())
      of_slot[slot->second][static_cast<size_t>(candidate.transport)].push_back(&candidate);
    found.insert(candidate.transport);
  }
  for (const Candidate& candidate : sockets) {
    if (search.slots.contains(candidate.socket.cookie)) continue;
    const Process& process = candidate.worker.process;
    const auto transport = static_cast<size_t>(candidate.transport);
    // A worker that made one of its two sockets again: the one place that lacks it is its own.
    const auto own = std::find_if(of_slot.begin(), of_slot.end(), [&](const auto& each) {
      const auto& others = each.second[1 - transport];
      return each.second[transport].empty() && !others.empty() && others.front()->worker.process.pid == process.pid;
    });
    (own == of_slot.end() ? of_process[{process.start_ticks, process.pid}] : own->second)[transport].push_back(
        &candidate);
  }
  for (const Transport transport : search.transports) {
    if (!found.contains(transport)) {
      return absl::NotFoundError(
          absl::StrCat("no process that was named has a ", NameOf(transport), " socket of ", search.listen.ToString()));
    }
  }
  std::vector<AdoptedWorker> workers;
  absl::Status paired;
  for (const auto& [process, own] : of_process)
    paired.Update(PairUp(search, scan.held.at(process.second), own, found.size() == 2, workers));
  for (const auto& [slot, own] : of_slot) paired.Update(PairUp(search, {}, own, false, workers));
  if (!paired.ok()) return paired;
  if (workers.size() > HR_STEER_SLOTS) {
    return absl::FailedPreconditionError(
        absl::StrCat(workers.size(), " workers: a group has at most ", HR_STEER_SLOTS));
  }
  return workers;
}

}  // namespace

absl::StatusOr<AdoptedWorkers> FindWorkers(SocketSearch search) {
  auto scan = Look(search);
  if (!scan.ok()) return scan.status();
  if (search.pids.empty()) return AdoptedWorkers();
  if (const absl::Status status = CheckNamed(search, *scan); !status.ok()) return status;
  std::vector<Candidate> sockets;
  std::map<std::pair<uint64_t, pid_t>, Process> others;  // oldest first
  for (const Candidate& candidate : scan->candidates) {
    if (!candidate.matches) continue;
    if (candidate.holders.empty()) {
      for (const Holder& each : candidate.others)
        others.emplace(std::pair(each.process.start_ticks, each.process.pid), each.process);
    } else {
      sockets.push_back(candidate);
    }
  }
  if (sockets.empty()) return absl::NotFoundError(absl::StrCat("no sockets of ", search.listen.ToString()));
  for (const Candidate& candidate : sockets) {
    if (const absl::Status status = CheckOptions(candidate, search); !status.ok()) return status;
  }
  NameWorkers(sockets);
  if (const absl::Status status = CheckOneGroup(sockets); !status.ok()) return status;
  auto workers = PairAll(search, *scan, sockets);
  if (!workers.ok()) return workers.status();
  AdoptedWorkers found{.workers = *std::move(workers)};
  for (const auto& [key, process] : others) found.others.push_back(process);
  return found;
}

absl::Status RefuseOthers(const AdoptedWorkers& found) {
  if (found.others.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const Process& process : found.others) names.push_back(ToString(process));
  return absl::FailedPreconditionError(
      absl::StrCat("process ", absl::StrJoin(names, ", "),
                   " shares this address and port, and would get nothing any more: name it as well, or end it"));
}

absl::StatusOr<net::UniqueFd> OpenSocket(const AdoptedSocket& socket) {
  auto copy = DescriptorOf(socket.holder, socket.descriptor);
  if (absl::IsPermissionDenied(copy.status())) return copy.status();
  if (!copy.ok() || CookieOf(copy->get()) != socket.cookie) {
    return absl::NotFoundError(absl::StrCat("process ", socket.holder, " has closed its socket"));
  }
  return copy;
}

absl::StatusOr<std::set<uint64_t>> CookiesOf(const SocketSearch& search) {
  const auto candidates = ListCandidates(search);
  if (!candidates.ok()) return candidates.status();
  std::set<uint64_t> cookies;
  for (const Candidate& candidate : *candidates) {
    if (candidate.matches) cookies.insert(candidate.socket.cookie);
  }
  return cookies;
}

Filters FiltersOf(const v1::Record& record) {
  return {{Transport::kUdp, {record.udp_filter().begin(), record.udp_filter().end()}},
          {Transport::kTcp, {record.tcp_filter().begin(), record.tcp_filter().end()}}};
}

void GiveBack(const KernelGroup* group, const SocketSearch& search, Filters filters) {
  const auto cookies = CookiesOf(search);
  if (!cookies.ok()) return;
  std::map<uint64_t, int> numbers;
  for (const uint64_t cookie : *cookies) numbers.emplace(cookie, static_cast<int>(numbers.size()));
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    const auto sockets = FetchSockets(transport, search.listen, numbers);
    if (!sockets.ok() || sockets->empty()) continue;
    const int socket = sockets->begin()->second.get();  // any: all of a transport are in one reuseport group
    const auto program = group == nullptr ? absl::StatusOr<uint32_t>(0) : group->ProgramOf(socket);
    if (group != nullptr && (!program.ok() || *program != group->OwnProgram(transport))) continue;
    const int none = 0;
    std::vector<uint32_t>& words = filters[transport];
    const sock_fprog filter{.len = static_cast<unsigned short>(words.size() / 2),
                            .filter = reinterpret_cast<sock_filter*>(words.data())};
    if (!words.empty() && setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof(filter)) == 0)
      continue;
    setsockopt(socket, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof(none));
  }
}

}  // namespace hedgerow::steer
