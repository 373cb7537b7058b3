// SPDX-License-Identifier: Apache-2.0
//
// hr-etcd-chaos: the load of the chaos experiments on etcd, with the flags and files of hr-kv-chaos. Started by
// chaos/run.py. --mode=final reads what the store holds instead.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "chaos/etcd/etcd_load.h"
#include "chaos/load/signals.h"

ABSL_FLAG(std::string, mode, "etcd", "etcd or final");
ABSL_FLAG(std::vector<std::string>, servers, {}, "address:port of each");
ABSL_FLAG(std::string, history, "", "file for the records");
ABSL_FLAG(std::string, of, "", "final: the history whose keys are read");
ABSL_FLAG(std::string, report, "", "file for the counters");
ABSL_FLAG(double, seconds, 60, "stop sending after this, if not told earlier");
ABSL_FLAG(uint32_t, clients, 2, "each with its own connections and a request every --interval");
ABSL_FLAG(absl::Duration, interval, absl::Milliseconds(1), "between two requests of a client");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5), "when a client gives a request up");
ABSL_FLAG(uint64_t, seed, 1, "of the operations");

namespace hedgerow::chaos {
namespace {

constexpr double kSecondsMax = 3600;

absl::Status RunFromFlags() {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  const MixOptions mix{.seed = absl::GetFlag(FLAGS_seed)};
  if (absl::GetFlag(FLAGS_history).empty()) return absl::InvalidArgumentError("--history names no file");
  if (mode == "final") {
    const absl::StatusOr<std::vector<Record>> history = ReadHistory(absl::GetFlag(FLAGS_of));
    if (!history.ok()) return history.status();
    const absl::StatusOr<std::vector<Record>> records =
        EtcdLoad::ReadFinalState(absl::GetFlag(FLAGS_servers), ReadsOfAllKeys(*history), absl::Seconds(30));
    if (!records.ok()) return records.status();
    return WriteHistory(absl::GetFlag(FLAGS_history), *records);
  }
  const double seconds = absl::GetFlag(FLAGS_seconds);
  if (mode != "etcd")
    return absl::InvalidArgumentError(absl::StrCat("--mode is etcd or final, not '", mode, "'"));
  if (absl::GetFlag(FLAGS_report).empty()) return absl::InvalidArgumentError("--report names no file");
  if (!(seconds > 0 && seconds <= kSecondsMax)) {
    return absl::InvalidArgumentError(absl::StrCat("--seconds must be above 0 and at most ", kSecondsMax));
  }
  const auto nanoseconds = [](absl::Duration duration) {
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration));
  };
  absl::StatusOr<std::unique_ptr<EtcdLoad>> load =
      EtcdLoad::Make({.servers = absl::GetFlag(FLAGS_servers),
                      .mix = mix,
                      .clients = absl::GetFlag(FLAGS_clients),
                      .interval_ns = nanoseconds(absl::GetFlag(FLAGS_interval)),
                      .timeout_ns = nanoseconds(absl::GetFlag(FLAGS_timeout)),
                      .run_max_ns = static_cast<uint64_t>(seconds * 1e9)});
  if (!load.ok()) return load.status();
  StopWhenAsked();
  if (absl::Status status = (*load)->Open(); !status.ok()) return status;
  ReportReady();
  (*load)->Run(stop_asked);
  if (absl::Status status = WriteHistory(absl::GetFlag(FLAGS_history), (*load)->records()); !status.ok()) {
    return status;
  }
  return WriteReport(absl::GetFlag(FLAGS_report), mode, (*load)->counters());
}

}  // namespace
}  // namespace hedgerow::chaos

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("The load of the chaos experiments on etcd.");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::cerr << "hr-etcd-chaos: does not know what '" << rest[1] << "' is\n";
    return 2;
  }
  const absl::Status status = hedgerow::chaos::RunFromFlags();
  if (!status.ok()) std::cerr << "hr-etcd-chaos: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
