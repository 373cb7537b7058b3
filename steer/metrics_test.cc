// SPDX-License-Identifier: Apache-2.0
//
// What a page shows of a group, and that docs/metrics.md has a row for each family. HEDGEROW_REWRITE=1 writes those.
#include "steer/metrics.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "absl/strings/str_cat.h"
#include "build_paths.h"

namespace hedgerow::steer {
namespace {

using testing::HasSubstr;

constexpr LoopTurns kTurns = {.worked = 12, .idle = 3};

v1::Group Sample() {
  v1::Group group;
  group.set_name("port-2055");
  for (uint32_t number = 0; number < 2; ++number) {
    v1::Slot& slot = *group.add_slots();
    slot.set_slot(number);
    slot.set_pid(number == 0 ? 4711 : 0);
    slot.set_state(number == 0 ? "serving" : "empty");
    slot.set_selected_udp(100 + number);
    slot.set_empty_tcp(7);
  }
  group.add_problems("takeover: of the UDP sockets");
  return group;
}

TEST(SteerMetrics, HaveASeriesForEachSlotAndTransport) {
  const std::string page = prometheus::TextSerializer().Serialize(FamiliesOf(Sample(), kTurns));
  for (const char* line :
       {"hedgerow_steer_selected_total{group=\"port-2055\",slot=\"0\",transport=\"udp\"} 100\n",
        "hedgerow_steer_selected_total{group=\"port-2055\",slot=\"1\",transport=\"udp\"} 101\n",
        "hedgerow_steer_selected_total{group=\"port-2055\",slot=\"1\",transport=\"tcp\"} 0\n",
        "hedgerow_steer_empty_total{group=\"port-2055\",slot=\"1\",transport=\"tcp\"} 7\n",
        "hedgerow_steer_loop_turns_total{group=\"port-2055\",worked=\"true\"} 12\n",
        "hedgerow_steer_loop_turns_total{group=\"port-2055\",worked=\"false\"} 3\n",
        "hedgerow_steer_slot_up{group=\"port-2055\",slot=\"0\"} 1\n",
        "hedgerow_steer_slot_up{group=\"port-2055\",slot=\"1\"} 0\n",
        "hedgerow_steer_taken_over{group=\"port-2055\"} 1\n", "hedgerow_steer_problems{group=\"port-2055\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(SteerMetrics, StandInTheirPage) {
  const std::string path = absl::StrCat(HEDGEROW_SOURCE_DIR, "/docs/metrics.md");
  std::ifstream file(path);
  const std::string former(std::istreambuf_iterator<char>(file), {});
  std::string rows = "| metric | what it counts |\n|---|---|\n";
  for (const prometheus::MetricFamily& family : FamiliesOf(Sample(), kTurns)) {
    absl::StrAppend(&rows, "| `", family.name, "` | ", family.type == prometheus::MetricType::Gauge ? "gauge: " : "",
                    family.help, " |\n");
  }
  std::string text = former;
  const size_t section = text.find("\n## Groups of workers");
  ASSERT_NE(section, std::string::npos) << path << " has no section of them";
  const size_t begin = text.find("| metric |", section);
  text.replace(begin, std::min(text.find("\n\n", begin), text.size() - 1) + 1 - begin, rows);
  if (getenv("HEDGEROW_REWRITE") != nullptr) {
    std::ofstream(path) << text;
  } else {
    EXPECT_EQ(text, former) << "HEDGEROW_REWRITE=1 rewrites " << path;
  }
}

}  // namespace
}  // namespace hedgerow::steer
