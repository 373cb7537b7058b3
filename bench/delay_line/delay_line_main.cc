// SPDX-License-Identifier: Apache-2.0
//
// hr-delay-line: hedges the UDP requests that this host sends to one backend, by the published technique: a
// clone of each waits in a queueing discipline (htb, netem or fq) and goes to a second backend if there is no
// answer by then. What bench/ compares Hedgerow with. Prints "ready"; for each line on standard input, and at
// its end (--seconds, SIGTERM), its figures as JSON. Leaves nothing behind. Needs root. Started by
// bench/delay_line.py.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/delay_line/delay_line_abi.h"
#include "bench/load/program.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/server_loop.h"
#include "bench_line.skel.h"
#include "net/netlink/link.h"
#include "net/netlink/netlink.h"
#include "net/tc/qdisc.h"
#include "net/tc/tc_attach.h"

ABSL_FLAG(std::string, primary, "", "the backend that clients send to, IPv4 address:port");
ABSL_FLAG(std::string, standby, "", "the backend that gets the hedges, on the same port");
ABSL_FLAG(absl::Duration, delay, absl::Milliseconds(10), "how long a clone waits");
ABSL_FLAG(std::string, qdisc, "htb", "what it waits in: htb, netem or fq");
ABSL_FLAG(int, id_bytes, 4, "how many bytes at a payload's start pair an answer with its request, 1 to 4");
ABSL_FLAG(std::string, uplink, "eth0", "the interface to the backends");
ABSL_FLAG(std::string, attach, "auto", "auto, tcx or clsact");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

constexpr char kInstance[] = "delay-line";
constexpr char kLink[] = "hrl0";
constexpr char kPeer[] = "hrl1";
constexpr uint32_t kMtuBytes = 1600;
// A second of 100,000 requests/s at a delay of 1 s; a full line is counted (line_full).
constexpr uint32_t kLimit_packets = 100'000;
constexpr uint32_t kPschedShift = 6;  // netem's unit of time is 64 ns
constexpr int kPoll_ms = 50;

absl::Status AddNetem(net::netlink::Socket& socket, int ifindex, uint64_t delay_ns) {
  tc_netem_qopt parameters{};
  // Rounded up: nothing may leave before its time.
  parameters.latency = static_cast<uint32_t>((delay_ns + (1 << kPschedShift) - 1) >> kPschedShift);
  parameters.limit = kLimit_packets;
  tcmsg header{};
  header.tcm_ifindex = ifindex;
  header.tcm_parent = TC_H_ROOT;
  header.tcm_handle = net::kQdiscHandle;
  net::netlink::Request request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, header);
  request.PutString(TCA_KIND, "netem");
  request.PutValue(TCA_OPTIONS, parameters);
  const absl::Status status = socket.Do(request, "make the netem qdisc");
  return absl::IsNotFound(status) ? absl::NotFoundError("the kernel has no sch_netem") : status;
}

absl::Status InstallQdisc(int ifindex, uint32_t qdisc, uint64_t delay_ns) {
  auto socket = net::netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  if (qdisc == HR_LINE_NETEM) return AddNetem(*socket, ifindex, delay_ns);
  if (qdisc == HR_LINE_FQ) return net::AddFqRoot(*socket, ifindex, kLimit_packets);
  absl::Status status = net::AddHtbRoot(*socket, ifindex, 0);
  for (uint32_t i = 0; i < HR_LINE_LEAVES && status.ok(); ++i)
    status = net::AddHtbClass(*socket, ifindex, HR_LINE_LEAF_BASE + i, delay_ns);
  return status;
}

absl::StatusOr<uint32_t> QdiscOf(const std::string& word) {
  if (word == "netem") return HR_LINE_NETEM;
  if (word == "fq") return HR_LINE_FQ;
  if (word == "htb") return HR_LINE_HTB;
  return absl::InvalidArgumentError(absl::StrCat("--qdisc: got ", word, ", expected htb, netem or fq"));
}

absl::StatusOr<net::Mechanism> MechanismOf(const std::string& word) {
  if (word == "auto") return net::Mechanism::kAuto;
  if (word == "tcx") return net::Mechanism::kTcx;
  if (word == "clsact") return net::Mechanism::kClsact;
  return absl::InvalidArgumentError(absl::StrCat("--attach: got ", word, ", expected auto, tcx or clsact"));
}

absl::StatusOr<sockaddr_in> BackendOf(const std::string& text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok()) return address.status();
  if (address->storage.ss_family != AF_INET)
    return absl::InvalidArgumentError(absl::StrCat(text, " is no IPv4 address"));
  return *reinterpret_cast<const sockaddr_in*>(&address->storage);
}

absl::StatusOr<hr_line_config> ConfigOfFlags() {
  const auto qdisc = QdiscOf(absl::GetFlag(FLAGS_qdisc));
  if (!qdisc.ok()) return qdisc.status();
  const auto primary = BackendOf(absl::GetFlag(FLAGS_primary));
  if (!primary.ok()) return primary.status();
  const auto standby = BackendOf(absl::GetFlag(FLAGS_standby));
  if (!standby.ok()) return standby.status();
  const auto uplink = net::FindLink(absl::GetFlag(FLAGS_uplink));
  if (!uplink.ok()) return uplink.status();
  const int id_bytes = absl::GetFlag(FLAGS_id_bytes);
  if (id_bytes < 1 || id_bytes > 4 || primary->sin_port != standby->sin_port ||
      absl::GetFlag(FLAGS_delay) < absl::Microseconds(100)) {
    return absl::InvalidArgumentError("expected 1 to 4 id bytes, backends on one port, a delay of 100us or more");
  }
  hr_line_config config{};
  config.delay_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_delay)));
  config.uplink_ifindex = static_cast<uint32_t>(uplink->ifindex);
  config.qdisc = *qdisc;
  config.id_mask_be = htonl(~0u << (8 * (4 - id_bytes)));
  config.primary_be = primary->sin_addr.s_addr;
  config.standby_be = standby->sin_addr.s_addr;
  config.port_be = primary->sin_port;
  return config;
}

hr_line_counters Sum(const bench_line_bpf& programs) {
  const uint32_t zero = 0;
  std::vector<hr_line_counters> each(static_cast<size_t>(libbpf_num_possible_cpus()));
  hr_line_counters sum{};
  if (bpf_map_lookup_elem(bpf_map__fd(programs.maps.counters), &zero, each.data()) != 0) return sum;
  for (const hr_line_counters& cpu : each) {
    sum.requests += cpu.requests;
    sum.line_full += cpu.line_full;
    sum.hedges += cpu.hedges;
    sum.hedges_failed += cpu.hedges_failed;
    sum.won_by_hedge += cpu.won_by_hedge;
    sum.losers_dropped += cpu.losers_dropped;
  }
  return sum;
}

void PrintFigures(const bench_line_bpf& programs) {
  const hr_line_counters sum = Sum(programs);
  const uint32_t fired = std::min<uint32_t>(programs.bss->fired, HR_LINE_FIRE_ERRORS);
  std::vector<uint32_t> errors(programs.bss->fire_error_ns, programs.bss->fire_error_ns + fired);
  std::sort(errors.begin(), errors.end());
  const auto quantile = [&errors](double q) {
    return errors.empty() ? 0 : errors[static_cast<size_t>(q * static_cast<double>(errors.size() - 1))];
  };
  absl::PrintF(
      "{\"requests\":%d,\"line_full\":%d,\"hedges\":%d,\"hedges_failed\":%d,\"won_by_hedge\":%d,"
      "\"losers_dropped\":%d,\"fire_error_ns\":{\"p50\":%d,\"p99\":%d,\"max\":%d}}\n",
      sum.requests, sum.line_full, sum.hedges, sum.hedges_failed, sum.won_by_hedge, sum.losers_dropped, quantile(0.5),
      quantile(0.99), quantile(1.0));
  fflush(stdout);
}

// Until its end or a signal: figures for each line that is asked for.
void Serve(const bench_line_bpf& programs) {
  const int64_t end_ns = MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9);
  pollfd asked{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (!MustStop(end_ns)) {
    if (poll(&asked, 1, kPoll_ms) <= 0) continue;
    char line[64];
    if (read(STDIN_FILENO, line, sizeof(line)) > 0) {
      PrintFigures(programs);
    } else {
      asked.fd = -1;
    }
  }
}

absl::Status RunFromFlags() {
  auto config = ConfigOfFlags();
  if (!config.ok()) return config.status();
  const auto mechanism = MechanismOf(absl::GetFlag(FLAGS_attach));
  if (!mechanism.ok()) return mechanism.status();
  StopOnSignals();
  absl::Status status = net::DeleteOwnedLink(kLink, kInstance);  // of one that was killed
  if (!status.ok()) return status;
  const auto line =
      net::CreateVethPair({.name = kLink, .peer_name = kPeer, .instance = kInstance, .mtu_bytes = kMtuBytes});
  if (!line.ok()) return line.status();
  const absl::Cleanup remove = [] { net::DeleteOwnedLink(kLink, kInstance).IgnoreError(); };
  config->line_ifindex = static_cast<uint32_t>(line->link.ifindex);
  status = InstallQdisc(line->link.ifindex, config->qdisc, config->delay_ns);
  if (!status.ok()) return status;

  const std::unique_ptr<bench_line_bpf, decltype(&bench_line_bpf__destroy)> programs(bench_line_bpf__open(),
                                                                                     &bench_line_bpf__destroy);
  if (programs == nullptr) return absl::InternalError("the programs cannot be read");
  memcpy(const_cast<hr_line_config*>(&programs->rodata->config), &*config, sizeof(*config));
  if (bench_line_bpf__load(programs.get()) != 0) return absl::InternalError("the kernel refused the programs");

  std::vector<net::Attachment> attachments;
  const auto attach = [&](const bpf_program* program, int ifindex, net::Direction direction) {
    if (!status.ok()) return;
    auto attached = net::Attachment::Attach({.ifindex = ifindex,
                                             .direction = direction,
                                             .mechanism = *mechanism,
                                             .instance = kInstance,
                                             .role = bpf_program__name(program)},
                                            bpf_program__fd(program));
    status = attached.status();
    if (attached.ok()) attachments.push_back(*std::move(attached));
  };
  const int uplink = static_cast<int>(config->uplink_ifindex);
  attach(programs->progs.hr_reply, uplink, net::Direction::kIngress);
  attach(programs->progs.hr_rescuer, line->peer.ifindex, net::Direction::kIngress);
  if (config->qdisc == HR_LINE_FQ) attach(programs->progs.hr_departure, line->link.ifindex, net::Direction::kEgress);
  attach(programs->progs.hr_splitter, uplink, net::Direction::kEgress);
  if (!status.ok()) return status;

  SayReady();
  Serve(*programs);
  PrintFigures(*programs);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "Hedges UDP requests by clones that wait in a queueing discipline.",
                                     hedgerow::bench::RunFromFlags);
}
