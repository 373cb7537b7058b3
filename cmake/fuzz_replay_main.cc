// SPDX-License-Identifier: Apache-2.0
//
// A main for fuzz targets where libFuzzer is not linked (g++, or a preset without AddressSanitizer). It feeds
// the target the empty input, every file of the corpus folders named as arguments, and a fixed number of seeded
// mutations of each. hedgerow_fuzz.cmake links it; ctest runs it as NAME:replay.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerInput = 200;
constexpr size_t kSyntheticInputBytes = 64;

using Bytes = std::vector<uint8_t>;

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

void Run(const Bytes& input) {
  // A copy of the exact size, so that a read one past the end meets the allocator's red zone, not slack.
  std::vector<uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void Mutate(const Bytes& seed, std::mt19937_64& random) {
  for (int i = 0; i < kMutationsPerInput; ++i) {
    Bytes input = seed;
    const size_t flips = 1 + random() % 4;
    for (size_t flip = 0; flip < flips && !input.empty(); ++flip) {
      input[random() % input.size()] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) input.resize(random() % (input.size() + 1));
    Run(input);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Bytes> inputs = {Bytes(), Bytes(kSyntheticInputBytes, 0), Bytes(kSyntheticInputBytes, 0xff)};
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      std::fprintf(stderr, "no such corpus folder: %s\n", argv[i]);
      return 2;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) inputs.push_back(ReadFile(entry.path()));
    }
  }
  std::mt19937_64 random(1);
  for (const Bytes& input : inputs) {
    Run(input);
    Mutate(input, random);
  }
  std::printf("replayed %zu inputs, %d mutations of each\n", inputs.size(), kMutationsPerInput);
  return 0;
}
