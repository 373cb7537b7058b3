// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes may be offered as a configuration. They are
// refused with at least one printable error, or they load, and then the
// emitted form loads as the same configuration.

#include <cstddef>
#include <cstdint>

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "proxy/config/emit.h"
#include "proxy/config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace config = hedgerow::config;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  config::Diagnostics errors("fuzz.yaml");
  const hedgerow::v1::Config loaded = config::LoadText(text, errors);
  if (!errors.empty()) {
    for (const std::string& line : errors.Lines()) {
      for (const char c : line) {
        if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) __builtin_trap();
      }
    }
    return 0;
  }
  config::Diagnostics again_errors("emitted.yaml");
  const hedgerow::v1::Config again = config::LoadText(config::EmitYaml(loaded, config::Secrets::kShown), again_errors);
  if (!again_errors.empty()) __builtin_trap();
  if (!google::protobuf::util::MessageDifferencer::Equals(loaded, again)) __builtin_trap();
  return 0;
}
