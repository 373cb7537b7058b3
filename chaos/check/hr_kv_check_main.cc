// SPDX-License-Identifier: Apache-2.0
//
// hr-kv-check HISTORY FINAL: judges what the clients of a run saw and prints the verdict as JSON. Exit 0 when
// nothing is wrong, 1 when something is, 2 when the files say nothing. Started by chaos/run.py.
#include <cstdio>
#include <string>
#include <vector>

#include "chaos/check/verdict.h"

namespace {

constexpr int kWrong = 1, kNoVerdict = 2;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "hr-kv-check: %s\n", std::string(status.message()).c_str());
  return kNoVerdict;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hedgerow::chaos;
  if (argc != 3) {
    std::fprintf(stderr, "usage: hr-kv-check HISTORY FINAL\n");
    return kNoVerdict;
  }
  const absl::StatusOr<std::vector<Record>> history = ReadHistory(argv[1]);
  if (!history.ok()) return Fail(history.status());
  const absl::StatusOr<std::vector<Record>> final_reads = ReadHistory(argv[2]);
  if (!final_reads.ok()) return Fail(final_reads.status());
  const absl::StatusOr<Verdict> verdict = Judge(*history, *final_reads);
  if (!verdict.ok()) return Fail(verdict.status());
  std::fputs(ToJson(*verdict).c_str(), stdout);
  return verdict->linearizable && verdict->acked_lost == 0 && verdict->double_applied == 0 ? 0 : kWrong;
}
