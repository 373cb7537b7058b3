// SPDX-License-Identifier: Apache-2.0
//
// Addresses of the running kernel to the names of its functions, from /proc/kallsyms; programs that the kernel
// has compiled (net.core.bpf_jit_kallsyms, Debian's default) are in it. Read once, so what is loaded later has
// no name: whoever measures programs starts after them. Needs root, to whom alone the addresses are shown.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

class KernelSymbols {
 public:
  static absl::StatusOr<KernelSymbols> Read();
  // Lines as the file has them: "ffffffff81000000 T _text".
  static KernelSymbols Parse(std::string_view text);

  // "" where nothing is known near the address.
  std::string_view NameOf(uint64_t address) const;
  size_t size() const { return symbols_.size(); }

 private:
  struct Symbol {
    uint64_t address;
    std::string name;
  };
  std::vector<Symbol> symbols_;  // ascending
};

}  // namespace hedgerow::bench
