// SPDX-License-Identifier: Apache-2.0
//
// hr-steer-collector: a worker of a collector, as the experiments on steering need it. It takes inherited sockets
// (LISTEN_FDS) or opens its own, and writes what it counted and what it cost. Started by bench/steer_systems.py, by
// itself or below `hedgerow steer run`.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/serve/server_loop.h"
#include "bench/steer/collector.h"
#include "bench/steer/source.h"
#include "operate/service_manager.h"

ABSL_FLAG(std::string, listen, "", "address:port of sockets of its own, where none are inherited");
ABSL_FLAG(std::string, transport, "both", "udp, tcp or both, of its own sockets");
ABSL_FLAG(bool, reuseport, false, "own sockets with SO_REUSEPORT");
ABSL_FLAG(int, receive_buffer, 4 << 20, "bytes, of an own UDP socket");
ABSL_FLAG(bool, shared, false, "other workers have the same inherited sockets");
ABSL_FLAG(int, slot, -1, "this worker's number; without it HEDGEROW_STEER_SLOT");
ABSL_FLAG(uint64_t, work, 0, "steps of work for each message (--calibrate says what one takes)");
ABSL_FLAG(bool, peek, false, "a message leaves the socket when it has been answered");
ABSL_FLAG(uint64_t, sources, 512, "how many sources are counted");
ABSL_FLAG(std::string, counts, "", "file that the counts by source are kept in");
ABSL_FLAG(std::string, report, "", "file for the totals and the processor time at the end, as JSON");
ABSL_FLAG(absl::Duration, start_delay_max, absl::ZeroDuration(), "waits at random up to this long before it begins");
ABSL_FLAG(double, seconds, 3600, "stops by itself after this time");
ABSL_FLAG(bool, calibrate, false, "prints how many steps of work a microsecond has, and ends");

namespace hedgerow::bench {
namespace {

void Calibrate() {
  constexpr uint64_t kSteps = 20'000'000;
  double best = 0;
  for (uint64_t round = 0; round < 5; ++round) {  // the best round: the others were disturbed
    const int64_t begin = MonotonicNs();
    const uint64_t result = Work(kSteps, round);
    const double per_us = static_cast<double>(kSteps) * 1e3 / static_cast<double>(MonotonicNs() - begin);
    if (result != 1) best = std::max(best, per_us);
  }
  absl::PrintF("{\"steps_per_us\":%.1f}\n", best);
}

absl::StatusOr<std::vector<Listening>> SocketsFromFlags() {
  absl::StatusOr<std::vector<Listening>> inherited = InheritedSockets();
  if (!inherited.ok() || !inherited->empty()) return inherited;
  const std::string listen = absl::GetFlag(FLAGS_listen);
  if (listen.empty())
    return absl::InvalidArgumentError("no inherited sockets (LISTEN_FDS), and no --listen ADDRESS:PORT");
  absl::StatusOr<Address> address = ParseAddress(listen);
  if (!address.ok()) return address.status();
  const std::string transport = absl::GetFlag(FLAGS_transport);
  if (transport != "udp" && transport != "tcp" && transport != "both") {
    return absl::InvalidArgumentError(absl::StrCat("--transport is udp, tcp or both, not '", transport, "'"));
  }
  return OpenSockets({.address = *address,
                      .udp = transport != "tcp",
                      .tcp = transport != "udp",
                      .reuseport = absl::GetFlag(FLAGS_reuseport),
                      .receive_buffer = absl::GetFlag(FLAGS_receive_buffer)});
}

absl::StatusOr<uint8_t> SlotFromFlags() {
  int slot = absl::GetFlag(FLAGS_slot);
  const char* text = std::getenv("HEDGEROW_STEER_SLOT");
  if (slot < 0 && text != nullptr && !absl::SimpleAtoi(text, &slot)) {
    return absl::InvalidArgumentError(absl::StrCat("HEDGEROW_STEER_SLOT is '", text, "', which is no number"));
  }
  if (slot >= SteerMessage::kNoSlot) return absl::InvalidArgumentError("--slot is 0 to 254");
  return slot < 0 ? SteerMessage::kNoSlot : static_cast<uint8_t>(slot);
}

int64_t HeartbeatNs() {
  const char* text = std::getenv("WATCHDOG_USEC");
  int64_t us = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &us) || us <= 0) return 0;
  return us * 1000 / 3;
}

int64_t Microseconds(const timeval& time) { return time.tv_sec * int64_t{1'000'000} + time.tv_usec; }

absl::Status WriteReport(const std::string& path, uint8_t slot, const CollectorTotals& totals) {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  std::ofstream file(path);
  file << absl::StrFormat(
      R"({"slot":%d,"pid":%d,"udp":%d,"tcp":%d,"accepted":%d,"not_messages":%d,"unanswered":%d,"beyond":%d,)"
      R"("user_us":%d,"system_us":%d,"max_rss_kb":%d,"voluntary_switches":%d})"
      "\n",
      slot, getpid(), totals.udp, totals.tcp, totals.accepted, totals.not_messages, totals.unanswered, totals.beyond,
      Microseconds(used.ru_utime), Microseconds(used.ru_stime), used.ru_maxrss, used.ru_nvcsw);
  file.flush();
  return file ? absl::OkStatus() : absl::DataLossError(absl::StrCat("cannot write '", path, "'"));
}

absl::Status RunFromFlags() {
  if (absl::GetFlag(FLAGS_calibrate)) {
    Calibrate();
    return absl::OkStatus();
  }
  StopOnSignals();
  if (const int64_t most_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_start_delay_max)); most_ns > 0) {
    std::srand(static_cast<unsigned>(getpid()) ^ static_cast<unsigned>(MonotonicNs()));
    usleep(static_cast<useconds_t>(std::rand() % (most_ns / 1000 + 1)));
  }
  (void)RaiseFileLimit(1 << 20);  // as many as may be
  absl::StatusOr<uint8_t> slot = SlotFromFlags();
  if (!slot.ok()) return slot.status();
  absl::StatusOr<std::vector<Listening>> sockets = SocketsFromFlags();
  if (!sockets.ok()) return sockets.status();
  absl::StatusOr<SourceCounts> counts = SourceCounts::Map(absl::GetFlag(FLAGS_counts), absl::GetFlag(FLAGS_sources));
  if (!counts.ok()) return counts.status();
  CollectorOptions options{.slot = *slot,
                           .work_steps = absl::GetFlag(FLAGS_work),
                           .peek = absl::GetFlag(FLAGS_peek),
                           .shared = absl::GetFlag(FLAGS_shared),
                           .heartbeat_ns = HeartbeatNs()};
  Collector collector(*std::move(sockets), *std::move(counts), options);
  operate::NotifyServiceManager("READY=1");
  absl::PrintF("worker %d\n", *slot);  // in which order workers come
  SayReady();
  const int64_t end_ns = MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9);
  const int most_ms =
      options.heartbeat_ns > 0 ? static_cast<int>(std::max<int64_t>(1, options.heartbeat_ns / 1'000'000)) : 100;
  while (!MustStop(end_ns)) collector.Turn(most_ms);
  const std::string report = absl::GetFlag(FLAGS_report);
  return report.empty() ? absl::OkStatus() : WriteReport(report, *slot, collector.totals());
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "A worker of a collector that counts messages by source.",
                                     hedgerow::bench::RunFromFlags);
}
