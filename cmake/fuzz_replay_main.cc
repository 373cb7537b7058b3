// SPDX-License-Identifier: Apache-2.0
//
// A main for fuzz targets where libFuzzer is not linked (g++, or a preset without AddressSanitizer). It feeds
// the target the empty input, every file of the corpus folders named as arguments, and a fixed number of seeded
// mutations of each. An input that kills the target is kept in the current folder as crash-NAME, for the
// corpus. hedgerow_fuzz.cmake links it; ctest runs it as NAME:replay.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
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

// What the signal handler writes out: it may neither allocate nor format.
const uint8_t* g_input_data = nullptr;
size_t g_input_bytes = 0;
char g_crash_path[256];

void KeepInput(int signal_number) {
  const int fd = open(g_crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0 && write(fd, g_input_data, g_input_bytes) == static_cast<ssize_t>(g_input_bytes)) {
    constexpr char kSaid[] = "the input is kept in the current folder as ";
    (void)!write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1);
    (void)!write(STDERR_FILENO, g_crash_path, std::strlen(g_crash_path));
    (void)!write(STDERR_FILENO, "\n", 1);
  }
  raise(signal_number);  // SA_RESETHAND: now it ends the process as it would have.
}

void KeepInputOfCrash(const char* program) {
  const char* slash = std::strrchr(program, '/');
  std::snprintf(g_crash_path, sizeof(g_crash_path), "crash-%s", slash == nullptr ? program : slash + 1);
  struct sigaction action = {};
  action.sa_handler = KeepInput;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int number : {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) sigaction(number, &action, nullptr);
}

void Run(const Bytes& input) {
  // A copy of the exact size, so that a read one past the end meets the allocator's red zone, not slack.
  std::vector<uint8_t> exact(input.begin(), input.end());
  g_input_data = exact.data();
  g_input_bytes = exact.size();
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
  KeepInputOfCrash(argv[0]);
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
