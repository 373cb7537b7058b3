// SPDX-License-Identifier: Apache-2.0
//
// hr-cpu-profile: what all CPUs are doing for a while, as JSON: samples by process and kind of work, those in
// soft interrupts apart, and the functions that were met most. Started by bench/cpu_profile.py, as root.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/profile/kernel_symbols.h"
#include "bench/profile/sampler.h"
#include "bench/profile/work.h"

ABSL_FLAG(absl::Duration, seconds, absl::Seconds(1), "how long; at most 10 minutes");
ABSL_FLAG(uint32_t, per_second, 997, "samples of each CPU; at most 10000");

namespace hedgerow::bench {
namespace {

constexpr size_t kTop = 30;

struct Counts {
  std::array<uint64_t, kWorkKinds> task{};
  std::array<uint64_t, kWorkKinds> soft_irq{};
};

class Profile {
 public:
  explicit Profile(const KernelSymbols& symbols) : symbols_(symbols) {}

  void Take(const Sample& sample) {
    names_.clear();
    for (const uint64_t address : sample.frames) names_.push_back(symbols_.NameOf(address));
    const auto work = static_cast<size_t>(WorkOf(names_));
    Counts& counts = processes_[sample.pid];
    ++(InSoftIrq(names_) ? counts.soft_irq : counts.task)[work];
    if (!names_.empty() && static_cast<Work>(work) != Work::kIdle)
      ++functions_[{work, std::string(names_.front())}];
  }

  std::string ToJson(double seconds, uint64_t lost) const {
    std::string out = absl::StrCat("{\"seconds\":", seconds, ",\"lost\":", lost, ",\"processes\":{");
    std::vector<std::string> parts;
    for (const auto& [pid, counts] : processes_)
      parts.push_back(absl::StrCat("\"", pid, "\":{\"task\":", Object(counts.task),
                                   ",\"soft_irq\":", Object(counts.soft_irq), "}"));
    absl::StrAppend(&out, absl::StrJoin(parts, ","), "},\"functions\":[", absl::StrJoin(Functions(), ","),
                    "]}");
    return out;
  }

 private:
  static std::string Object(const std::array<uint64_t, kWorkKinds>& counts) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < kWorkKinds; ++i)
      parts.push_back(absl::StrCat("\"", std::string(Name(static_cast<Work>(i))), "\":", counts[i]));
    return absl::StrCat("{", absl::StrJoin(parts, ","), "}");
  }

  std::vector<std::string> Functions() const {
    std::vector<std::pair<uint64_t, const std::pair<size_t, std::string>*>> sorted;
    for (const auto& [function, count] : functions_) sorted.emplace_back(count, &function);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (sorted.size() > kTop) sorted.resize(kTop);
    std::vector<std::string> out;
    for (const auto& [count, function] : sorted)
      out.push_back(absl::StrCat("[\"", function->second, "\",\"",
                                 std::string(Name(static_cast<Work>(function->first))), "\",", count, "]"));
    return out;
  }

  const KernelSymbols& symbols_;
  std::vector<std::string_view> names_;
  std::map<uint32_t, Counts> processes_;
  std::map<std::pair<size_t, std::string>, uint64_t> functions_;
};

absl::Status Run() {
  const absl::Duration wanted = absl::GetFlag(FLAGS_seconds);
  const uint32_t per_second = absl::GetFlag(FLAGS_per_second);
  if (wanted <= absl::ZeroDuration() || wanted > absl::Minutes(10))
    return absl::InvalidArgumentError("--seconds is above 0 and at most 10 minutes");
  if (per_second < 1 || per_second > 10'000) return absl::InvalidArgumentError("--per_second is 1 to 10000");
  absl::StatusOr<KernelSymbols> symbols = KernelSymbols::Read();
  if (!symbols.ok()) return symbols.status();
  absl::StatusOr<Sampler> sampler = Sampler::Start(per_second);
  if (!sampler.ok()) return sampler.status();
  Profile profile(*symbols);
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + wanted) {
    absl::SleepFor(std::min(absl::Milliseconds(100), begin + wanted - absl::Now()));
    sampler->Drain([&](const Sample& sample) { profile.Take(sample); });
  }
  sampler->Stop();
  sampler->Drain([&](const Sample& sample) { profile.Take(sample); });
  puts(profile.ToJson(absl::ToDoubleSeconds(absl::Now() - begin), sampler->lost()).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Samples what all CPUs are doing.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = hedgerow::bench::Run();
  if (!status.ok()) std::cerr << "hr-cpu-profile: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
