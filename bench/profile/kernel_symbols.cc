// SPDX-License-Identifier: Apache-2.0
#include "bench/profile/kernel_symbols.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"

namespace hedgerow::bench {
namespace {

// No function is longer; beyond it lies something that has no name, such as a program that came later.
constexpr uint64_t kLongest_bytes = 256 * 1024;

}  // namespace

absl::StatusOr<KernelSymbols> KernelSymbols::Read() {
  std::ifstream file("/proc/kallsyms");
  std::ostringstream text;
  text << file.rdbuf();
  KernelSymbols symbols = Parse(text.str());
  if (symbols.symbols_.empty() || symbols.symbols_.back().address == 0)
    return absl::PermissionDeniedError("/proc/kallsyms shows no addresses: root is needed");
  return symbols;
}

KernelSymbols KernelSymbols::Parse(std::string_view text) {
  KernelSymbols out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    uint64_t address = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), address, 16);
    if (error != std::errc() || line.data() + line.size() - rest < 4) continue;
    const char kind = rest[1];
    if (kind != 't' && kind != 'T' && kind != 'w' && kind != 'W') continue;
    std::string_view name(rest + 3, static_cast<size_t>(line.data() + line.size() - rest - 3));
    out.symbols_.push_back({address, std::string(name.substr(0, name.find_first_of(" \t")))});
  }
  std::stable_sort(out.symbols_.begin(), out.symbols_.end(),
                   [](const Symbol& a, const Symbol& b) { return a.address < b.address; });
  return out;
}

std::string_view KernelSymbols::NameOf(uint64_t address) const {
  auto after = std::upper_bound(symbols_.begin(), symbols_.end(), address,
                                [](uint64_t wanted, const Symbol& symbol) { return wanted < symbol.address; });
  if (after == symbols_.begin()) return "";
  --after;
  return address - after->address < kLongest_bytes ? std::string_view(after->name) : std::string_view();
}

}  // namespace hedgerow::bench
