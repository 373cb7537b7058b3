// SPDX-License-Identifier: Apache-2.0
//
// hr-record: an instance's record as text, without its configuration (which
// holds keys). For tests it also changes what the record says, as another
// build, a crash or a damaged machine would.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "proxy/instance/instance_record.h"

namespace {

int Fail(const std::string& text) {
  fprintf(stderr, "hr-record: %s\n", text.c_str());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return Fail("usage: hr-record PIN_FOLDER [abi_version=N | layout=MAP | complete=false]...");
  auto record = hedgerow::InstanceRecord::Open(argv[1]);
  if (!record.ok()) return Fail(std::string(record.status().message()));
  for (int i = 2; i < argc; ++i) {
    const absl::string_view word = argv[i];
    uint32_t number = 0;
    if (absl::StartsWith(word, "abi_version=") && absl::SimpleAtoi(word.substr(12), &number)) {
      record->data().set_abi_version(number);
    } else if (absl::StartsWith(word, "layout=")) {
      for (auto& map : *record->data().mutable_maps()) {
        if (map.name() == word.substr(7)) map.set_layout(map.layout() + 1);
      }
    } else if (word == "complete=false") {
      record->data().set_complete(false);
    } else {
      return Fail("does not know " + std::string(word));
    }
  }
  if (argc > 2) {
    if (const absl::Status status = record->Save(); !status.ok()) return Fail(std::string(status.message()));
  }
  hedgerow::v1::KernelRecord shown = record->data();
  shown.clear_config();
  shown.clear_load_config();
  printf("%s", shown.DebugString().c_str());
  return EXIT_SUCCESS;
}
