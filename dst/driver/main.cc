// SPDX-License-Identifier: Apache-2.0
//
// hr-dst-driver PLAN OUT: plays one seed inside a machine in virtual time (guest/stage.sh starts it). Exit 0:
// it was played, and nothing happened that must not; 1: something did, which standard output and OUT/diary.txt
// say; 2: there was no experiment.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "dst/driver/plan.h"
#include "dst/driver/stage.h"

namespace {

constexpr int kTrouble = 1, kNoExperiment = 2;

int Fail(const absl::Status& status) {
  std::printf("no experiment: %s\n", std::string(status.message()).c_str());
  return kNoExperiment;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hedgerow::dst;
  if (argc != 3) {
    std::fprintf(stderr, "usage: hr-dst-driver PLAN OUT\n");
    return kNoExperiment;
  }
  std::ostringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  const absl::StatusOr<Plan> plan = ParsePlan(text.str());
  if (!plan.ok()) return Fail(plan.status());
  Stage stage(*plan, argv[2]);
  if (const absl::Status played = stage.Run(); !played.ok()) return Fail(played);
  return stage.sound() ? 0 : kTrouble;
}
