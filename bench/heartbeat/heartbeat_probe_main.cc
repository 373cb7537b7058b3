// SPDX-License-Identifier: Apache-2.0
//
// hr-heartbeat-probe: measures how long answers take, of an echo server (--echo) or of a node (--leader_of, the
// node's configuration), to which it is the leader: it stands in for the one other member, at that member's
// address. Prints its report as JSON. Started by bench/heartbeat.py.
#include <sched.h>
#include <sys/mman.h>

#include <cstdio>
#include <memory>
#include <random>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/heartbeat/probe.h"
#include "bench/load/program.h"
#include "cluster/node/config/config.h"

ABSL_FLAG(std::string, echo, "", "address:port of an echo server");
ABSL_FLAG(std::string, leader_of, "", "configuration of a node in a cluster of two");
ABSL_FLAG(std::string, from, "0.0.0.0:0", "for --echo: the own address");
ABSL_FLAG(uint64_t, questions, 10'000, "measured; at most 1000000");
ABSL_FLAG(absl::Duration, interval, absl::Milliseconds(1), "between two questions");
ABSL_FLAG(int, fifo, 0, "real-time priority (SCHED_FIFO), 1 to 99; 0: none");

namespace hedgerow::bench {
namespace {

// As long as a heartbeat and its answer, so that both ways carry the same.
constexpr size_t kEcho_bytes = wire::kPeerHeader_bytes + sizeof(hr_peer_heartbeat);
// Far beyond the terms that a node can have reached by itself.
constexpr uint64_t kTerm = 1'000'000;
constexpr uint64_t kElectionTimeout_ns = 20'000'000;

struct Probe {
  Address from{}, to{};
  std::unique_ptr<ProbeTalk> talk{};
};

absl::StatusOr<Probe> LeaderOf(const std::string& path) {
  const absl::StatusOr<node::NodeConfig> config = node::LoadNodeConfig(path);
  if (!config.ok()) return config.status();
  if (config->members.size() != 2) return absl::InvalidArgumentError("--leader_of wants a cluster of two");
  const node::MemberConfig& self = config->members[config->members[0].id == config->self ? 1 : 0];
  absl::StatusOr<Address> from = ParseAddress(self.peer.ToString());
  absl::StatusOr<Address> to = ParseAddress(config->own().peer.ToString());
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  std::random_device random;
  const uint64_t incarnation = (static_cast<uint64_t>(random()) << 32 | random()) | 1;
  const wire::PeerIdentity identity{
      .cluster_id = config->cluster_id, .keys = config->cluster_keys, .self = self.id, .incarnation = incarnation};
  return Probe{.from = *from,
               .to = *to,
               .talk = std::make_unique<LeaderTalk>(identity, config->self, raft::Term(kTerm), kElectionTimeout_ns)};
}

absl::StatusOr<Probe> ProbeFromFlags() {
  const std::string echo = absl::GetFlag(FLAGS_echo);
  const std::string config = absl::GetFlag(FLAGS_leader_of);
  if (echo.empty() == config.empty()) return absl::InvalidArgumentError("one of --echo and --leader_of is needed");
  if (!config.empty()) return LeaderOf(config);
  const absl::StatusOr<Address> to = ParseAddress(echo);
  const absl::StatusOr<Address> from = ParseAddress(absl::GetFlag(FLAGS_from));
  if (!to.ok()) return to.status();
  if (!from.ok()) return from.status();
  return Probe{.from = *from, .to = *to, .talk = std::make_unique<EchoTalk>(kEcho_bytes)};
}

absl::Status BecomeRealTime(int priority) {
  if (priority == 0) return absl::OkStatus();
  const sched_param parameters{.sched_priority = priority};
  if (sched_setscheduler(0, SCHED_FIFO, &parameters) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("SCHED_FIFO with priority ", priority));
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return absl::ErrnoToStatus(errno, "mlockall");
  return absl::OkStatus();
}

absl::Status Run() {
  ProbeOptions options;
  options.questions = absl::GetFlag(FLAGS_questions);
  options.interval = absl::GetFlag(FLAGS_interval);
  if (options.questions < 1 || options.questions > 1'000'000)
    return absl::InvalidArgumentError("--questions is 1 to 1000000");
  if (options.interval < absl::Microseconds(10) || options.interval > absl::Seconds(1))
    return absl::InvalidArgumentError("--interval is 10us to 1s");
  absl::StatusOr<Probe> probe = ProbeFromFlags();
  if (!probe.ok()) return probe.status();
  options.to = probe->to;
  absl::StatusOr<UdpSocket> socket = UdpSocket::Listen(probe->from);
  if (!socket.ok()) return socket.status();
  AskForExactTimers();
  if (absl::Status real_time = BecomeRealTime(absl::GetFlag(FLAGS_fifo)); !real_time.ok()) return real_time;
  const ProbeReport report = RunProbe(*socket, *probe->talk, options);
  printf("{\"answered\":%llu,\"lost\":%llu,\"others\":%llu,\"latency\":%s,\"send_lag\":%s}\n",
         static_cast<unsigned long long>(report.answered), static_cast<unsigned long long>(report.lost),
         static_cast<unsigned long long>(report.others), report.latency_ns.ToJson().c_str(),
         report.send_lag_ns.ToJson().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "Measures how long heartbeats wait for their answers.",
                                     hedgerow::bench::Run);
}
