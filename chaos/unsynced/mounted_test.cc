// SPDX-License-Identifier: Apache-2.0
#include "chaos/unsynced/mounted_test.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "build_paths.h"
#include "cluster/raft/check.h"

extern char** environ;

namespace hedgerow::unsynced {
namespace {

constexpr int kAnswerWithin_ms = 30'000;

// In memory where there is a tmpfs: a test has no time to wait for a disk.
std::string NewFolder() {
  std::string folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  folder += "/hr-unsynced-test.XXXXXX";
  HEDGEROW_CHECK(mkdtemp(folder.data()) != nullptr);
  return folder;
}

std::pair<net::UniqueFd, net::UniqueFd> Pipe() {
  int ends[2];
  HEDGEROW_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  return {net::UniqueFd(ends[0]), net::UniqueFd(ends[1])};
}

std::string ReadLine(int from) {
  std::string line;
  while (true) {
    pollfd event = {.fd = from, .events = POLLIN, .revents = 0};
    HEDGEROW_CHECK(poll(&event, 1, kAnswerWithin_ms) == 1);
    char next = 0;
    HEDGEROW_CHECK(read(from, &next, 1) == 1);
    if (next == '\n') return line;
    line += next;
  }
}

}  // namespace

std::string WhyNoFuse() {
  const net::UniqueFd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device.valid()) return std::string("/dev/fuse: ") + std::strerror(errno);
  const std::string folder = NewFolder();
  const std::string options = "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
  const int result = mount("probe", folder.c_str(), "fuse.probe", MS_NOSUID | MS_NODEV, options.c_str());
  const std::string why = result == 0 ? "" : std::string("mount: ") + std::strerror(errno);
  if (result == 0) (void)umount2(folder.c_str(), MNT_DETACH);
  (void)rmdir(folder.c_str());
  return why;
}

Mounted::Mounted(std::vector<std::string> flags) : folder_(NewFolder()) {
  HEDGEROW_CHECK(mkdir(path().c_str(), 0700) == 0);
  auto [child_input, input] = Pipe();
  auto [output, child_output] = Pipe();
  const std::string program = std::string(HEDGEROW_BUILD_DIR) + "/bin/hr-unsynced-fs";
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {backing(), path()});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
  HEDGEROW_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  input_ = std::move(input);
  output_ = std::move(output);
  child_output = net::UniqueFd();
  HEDGEROW_CHECK(ReadLine(output_.get()) == "ready");
}

Mounted::~Mounted() {
  if (pid_ > 0) End();
  (void)umount2(path().c_str(), MNT_DETACH);
  std::filesystem::remove_all(folder_);
}

int Mounted::End() {
  input_ = net::UniqueFd();
  int status = -1;
  HEDGEROW_CHECK(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
  return status;
}

std::string Mounted::Ask(const std::string& command) {
  HEDGEROW_CHECK(write(input_.get(), command.data(), command.size()) == static_cast<ssize_t>(command.size()));
  return ReadLine(output_.get());
}

bool IsMounted(const std::string& path) {
  std::ifstream mounts("/proc/self/mounts");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::string source;
    std::string point;
    words >> source >> point;
    if (point == path) return true;
  }
  return false;
}

}  // namespace hedgerow::unsynced
