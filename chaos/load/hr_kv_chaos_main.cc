// SPDX-License-Identifier: Apache-2.0
//
// hr-kv-chaos: the load of the chaos experiments on our own store. Started by chaos/run.py; writes every
// operation to
// --history when it ends (at --seconds, or earlier at SIGTERM) and its counters as JSON to --report.
// --mode=final reads what the store holds instead. The modes: `noproxy-noretry` and `hedgerow` send once to one
// address, which is a server's or the proxy's; `noproxy-app` hedges by itself over all --servers.
#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "chaos/load/final_read.h"
#include "chaos/etcd/etcd_load.h"
#include "chaos/load/hkv_load.h"
#include "chaos/load/report.h"

ABSL_FLAG(std::string, store, "hkv", "hkv, ours, or etcd, over its own protocol");
ABSL_FLAG(std::string, mode, "",
          "hedgerow, noproxy-noretry or noproxy-app; etcd; or final, which reads what the store holds");
ABSL_FLAG(std::vector<std::string>, servers, {}, "address:port of each; several only for noproxy-app, etcd and final");
ABSL_FLAG(std::string, history, "", "file for the records");
ABSL_FLAG(std::string, of, "", "final: the history whose keys are read");
ABSL_FLAG(std::string, report, "", "file for the counters");
ABSL_FLAG(double, seconds, 60, "stop sending after this, if not told earlier");
ABSL_FLAG(uint32_t, clients, 2, "sockets, each with a request every --interval");
ABSL_FLAG(uint32_t, sessions, 8, "of each client");
ABSL_FLAG(absl::Duration, interval, absl::Milliseconds(1), "between two requests of a client");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5), "when a client gives a request up");
ABSL_FLAG(absl::Duration, hedge_delay, absl::Milliseconds(5), "noproxy-app: from the send to the first copy");
ABSL_FLAG(uint32_t, attempts, 5, "noproxy-app: sends of a request at most, but for those to a leader that was named");
ABSL_FLAG(uint32_t, first_leader, 0,
          "noproxy-app: which of --servers, from 0, is taken for the leader until something else is known");
ABSL_FLAG(bool, progress, false, "print how it is doing, four JSON lines a second, after the line that says ready");
ABSL_FLAG(uint64_t, seed, 1, "of the operations");
ABSL_FLAG(uint32_t, increments_percent, 30, "of the operations");
ABSL_FLAG(uint32_t, puts_percent, 35, "of the operations; the rest are gets");

namespace hedgerow::chaos {
namespace {

constexpr double kSecondsMax = 3600;

uint64_t Nanoseconds(absl::Duration duration) { return static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration)); }

LoadOptions OptionsFromFlags(const std::string& mode, const MixOptions& mix) {
  return {.servers = absl::GetFlag(FLAGS_servers),
          .application = mode == "noproxy-app",
          .hedging = {.delay_ns = Nanoseconds(absl::GetFlag(FLAGS_hedge_delay)),
                      .attempts_max = absl::GetFlag(FLAGS_attempts),
                      .first_leader = absl::GetFlag(FLAGS_first_leader)},
          .mix = mix,
          .clients = absl::GetFlag(FLAGS_clients),
          .sessions = absl::GetFlag(FLAGS_sessions),
          .interval_ns = Nanoseconds(absl::GetFlag(FLAGS_interval)),
          .timeout_ns = Nanoseconds(absl::GetFlag(FLAGS_timeout)),
          .run_max_ns = static_cast<uint64_t>(absl::GetFlag(FLAGS_seconds) * 1e9)};
}

// A reader that does not read holds the load up, so only a reader that reads asks for it.
void PrintTick(const LoadTick& tick) {
  std::printf(R"({"at_ns":%)" PRIu64 R"(,"sent":%)" PRIu64 R"(,"ok":%)" PRIu64 R"(,"failed":%)" PRIu64
              R"(,"longest_ms":%.3f})"
              "\n",
              tick.at_ns, tick.sent, tick.ok, tick.failed, static_cast<double>(tick.longest_ns) / 1e6);
  std::fflush(stdout);
}

std::atomic<bool> stop_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

// SIGTERM and SIGINT end the load early and in order: it stops sending, waits for what is outstanding and writes down
// what it saw.
template <typename Load>
absl::Status RunLoad(const std::string& mode, Load& load, auto&&... progress) {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_asked = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  if (absl::Status status = load.Open(); !status.ok()) return status;
  std::printf("ready\n");  // says to the runner that the load has begun
  std::fflush(stdout);
  load.Run(stop_asked, progress...);
  if (absl::Status status = WriteHistory(absl::GetFlag(FLAGS_history), load.records()); !status.ok()) return status;
  return WriteReport(absl::GetFlag(FLAGS_report), mode, load.counters());
}

absl::Status RunEtcd(const MixOptions& mix) {
  absl::StatusOr<std::unique_ptr<EtcdLoad>> load = EtcdLoad::Make(OptionsFromFlags("etcd", mix));
  return load.ok() ? RunLoad("etcd", **load) : load.status();
}

absl::Status RunHkv(const std::string& mode, const MixOptions& mix) {
  absl::StatusOr<HkvLoad> load = HkvLoad::Make(OptionsFromFlags(mode, mix));
  return load.ok() ? RunLoad(mode, *load, absl::GetFlag(FLAGS_progress) ? PrintTick : nullptr) : load.status();
}

absl::Status RunFromFlags() {
  const std::string mode = absl::GetFlag(FLAGS_mode), store = absl::GetFlag(FLAGS_store);
  const bool etcd = store == "etcd";
  if (!etcd && store != "hkv")
    return absl::InvalidArgumentError(absl::StrCat("--store is hkv or etcd, not '", store, "'"));
  if (absl::GetFlag(FLAGS_history).empty()) return absl::InvalidArgumentError("--history names no file");
  const MixOptions mix{.seed = absl::GetFlag(FLAGS_seed),
                       .increments_percent = absl::GetFlag(FLAGS_increments_percent),
                       .puts_percent = absl::GetFlag(FLAGS_puts_percent)};
  if (mix.increments_percent > 100 || mix.puts_percent > 100 - mix.increments_percent) {
    return absl::InvalidArgumentError("--increments_percent and --puts_percent are at most 100 together");
  }
  if (mode == "final") {
    const absl::StatusOr<std::vector<Record>> history = ReadHistory(absl::GetFlag(FLAGS_of));
    if (!history.ok()) return history.status();
    const absl::StatusOr<std::vector<Record>> records =
        ReadFinalState(absl::GetFlag(FLAGS_servers), ReadsOfAllKeys(*history), absl::Seconds(30),
                       etcd ? EtcdLoad::ConnectTo : ConnectToHkv);
    if (!records.ok()) return records.status();
    return WriteHistory(absl::GetFlag(FLAGS_history), *records);
  }
  if (etcd ? mode != "etcd" : mode != "hedgerow" && mode != "noproxy-noretry" && mode != "noproxy-app") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--mode is ", etcd ? "etcd" : "hedgerow, noproxy-noretry, noproxy-app", " or final, not '", mode, "'"));
  }
  if (const double seconds = absl::GetFlag(FLAGS_seconds); !(seconds > 0 && seconds <= kSecondsMax)) {
    return absl::InvalidArgumentError(absl::StrCat("--seconds must be above 0 and at most ", kSecondsMax));
  }
  if (absl::GetFlag(FLAGS_report).empty()) return absl::InvalidArgumentError("--report names no file");
  return etcd ? RunEtcd(mix) : RunHkv(mode, mix);
}

}  // namespace
}  // namespace hedgerow::chaos

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv,
                                     "The load of the chaos experiments: open loop, every operation written down.",
                                     hedgerow::chaos::RunFromFlags);
}
