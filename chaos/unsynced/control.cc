// SPDX-License-Identifier: Apache-2.0
#include "chaos/unsynced/control.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::unsynced {
namespace {

constexpr size_t kLineMax_bytes = 4096;
constexpr uint64_t kSyncDelayMax_ms = 10'000;

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned char>(c));
      quoted += escaped.data();
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string ToJson(const Loss& loss) {
  std::string files;
  uint64_t bytes = 0;
  for (const auto& [path, lost] : loss.bytes) {
    absl::StrAppend(&files, files.empty() ? "" : ", ", Quoted(path), ": ", lost);
    bytes += lost;
  }
  return absl::StrCat("{\"lost_bytes\": ", bytes, ", \"lost_names\": ", loss.names, ", \"files\": {", files, "}}");
}

std::string Suffer(Disk& disk, const Ailments& ailments) {
  const Suffered suffered = disk.suffered();
  disk.Ail(ailments);
  return absl::StrCat("{\"slowed\": ", suffered.slowed, ", \"refused\": ", suffered.refused,
                      ", \"hung\": ", suffered.hung, "}");
}

bool Send(int output, std::string line) {
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t sent = write(output, line.data() + done, line.size() - done);
    if (sent < 0 && errno != EINTR) return false;
    if (sent > 0) done += static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

std::string Obey(Disk& disk, std::string_view command) {
  if (command == "cut") return ToJson(disk.Cut(std::nullopt));
  if (command == "well") return Suffer(disk, {});
  if (command == "full") return Suffer(disk, {.full = true});
  if (command == "hang") return Suffer(disk, {.hangs = true});
  constexpr std::string_view kSlow = "slow ";
  uint64_t delay_ms = 0;
  if (command.substr(0, kSlow.size()) == kSlow &&
      absl::SimpleAtoi(std::string(command.substr(kSlow.size())), &delay_ms) && delay_ms <= kSyncDelayMax_ms) {
    return Suffer(disk, {.sync_delay_ms = delay_ms});
  }
  constexpr std::string_view kWithSeed = "cut ";
  uint64_t seed = 0;
  if (command.substr(0, kWithSeed.size()) == kWithSeed &&
      absl::SimpleAtoi(std::string(command.substr(kWithSeed.size())), &seed)) {
    return ToJson(disk.Cut(seed));
  }
  return absl::StrCat("{\"error\": ",
                      Quoted("expected 'cut', 'cut SEED', 'slow MILLISECONDS', 'full', 'hang' or 'well', not '" +
                             std::string(command) + "'"),
                      "}");
}

namespace {

void ObeyUntilInputEnds(Disk& disk, int input, int output) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  const net::UniqueFd ended(signalfd(-1, &signals, SFD_CLOEXEC));
  std::string pending;
  while (true) {
    std::array<pollfd, 2> events = {
        {{.fd = input, .events = POLLIN, .revents = 0}, {.fd = ended.get(), .events = POLLIN, .revents = 0}}};
    if (poll(events.data(), events.size(), -1) < 0 && errno != EINTR) return;
    if (events[1].revents != 0) return;
    if (events[0].revents == 0) continue;
    std::array<char, 512> buffer{};
    const ssize_t got = read(input, buffer.data(), buffer.size());
    if (got <= 0 || pending.size() > kLineMax_bytes) return;
    pending.append(buffer.data(), static_cast<size_t>(got));
    for (size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      if (!Send(output, Obey(disk, std::string_view(pending).substr(0, end)))) return;
      pending.erase(0, end + 1);
    }
  }
}

}  // namespace

void ObeyUntilTheEnd(Disk& disk, int input, int output) {
  ObeyUntilInputEnds(disk, input, output);
  disk.Ail({});  // no call may keep the mount
}

}  // namespace hedgerow::unsynced
