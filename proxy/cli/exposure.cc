// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/exposure.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "net/capabilities.h"
#include "net/unique_fd.h"
#include "operate/file_rights.h"
#include "operate/key_file.h"

namespace hedgerow::cli {
namespace {

constexpr size_t kKeyFileMax_bytes = 256;

bool InRange(const net::IpAddress& address, const char* prefix, int bits) {
  const std::array<uint8_t, 16> wanted = net::IpAddress::Parse(prefix)->mapped();
  const std::array<uint8_t, 16>& had = address.mapped();
  const int from = address.is_v4() ? 96 : 0;
  for (int bit = 0; bit < from + bits; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((wanted[bit / 8] & mask) != (had[bit / 8] & mask)) return false;
  }
  return true;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "0100007F:1F90", of 32-bit words in the host's order.
std::optional<ListeningSocket> ParseEnd(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  uint32_t port = 0;
  if (parts.size() != 2 || (parts[0].size() != 8 && parts[0].size() != 32) || !absl::SimpleHexAtoi(parts[1], &port))
    return std::nullopt;
  std::vector<uint8_t> bytes(parts[0].size() / 2);
  for (size_t at = 0; at < parts[0].size(); at += 8) {
    uint32_t word = 0;
    if (!absl::SimpleHexAtoi(parts[0].substr(at, 8), &word)) return std::nullopt;
    memcpy(bytes.data() + at / 2, &word, sizeof(word));
  }
  return ListeningSocket{.address = *net::IpAddress::FromBytes(bytes), .port = static_cast<uint16_t>(port)};
}

std::set<uint64_t> SocketsOf(const std::string& process) {
  std::set<uint64_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(process + "/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry->path(), gone).string();
    absl::string_view text = target;
    uint64_t inode = 0;
    if (absl::ConsumePrefix(&text, "socket:[") && absl::ConsumeSuffix(&text, "]") && absl::SimpleAtoi(text, &inode))
      found.insert(inode);
  }
  return found;
}

}  // namespace

std::vector<ListeningSocket> ListeningSockets(absl::string_view table) {
  constexpr absl::string_view kTcpListens = "0A", kUdpUnconnected = "07";
  std::vector<ListeningSocket> found;
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 10 || (words[3] != kTcpListens && words[3] != kUdpUnconnected)) continue;
    std::optional<ListeningSocket> socket = ParseEnd(words[1]);
    if (!socket.has_value() || !absl::SimpleAtoi(words[9], &socket->inode)) continue;
    found.push_back(*socket);
  }
  return found;
}

bool IsPublic(const net::IpAddress& address) {
  if (address.is_loopback()) return false;
  if (address.is_v4()) {
    return !InRange(address, "10.0.0.0", 8) && !InRange(address, "172.16.0.0", 12) &&
           !InRange(address, "192.168.0.0", 16) && !InRange(address, "100.64.0.0", 10) &&
           !InRange(address, "169.254.0.0", 16);
  }
  return !InRange(address, "fc00::", 7) && !InRange(address, "fe80::", 10);
}

std::vector<std::string> PublicPortsOf(const std::string& program) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string process = entry.path().string();
    const std::string pid = entry.path().filename().string();
    // The kernel keeps 15 bytes of a name.
    if (!absl::ascii_isdigit(static_cast<unsigned char>(pid[0])) ||
        absl::StripAsciiWhitespace(ReadAll(process + "/comm")) != program.substr(0, 15)) {
      continue;
    }
    const std::set<uint64_t> sockets = SocketsOf(process);
    for (const char* protocol : {"udp", "udp6", "tcp", "tcp6"}) {
      for (const ListeningSocket& socket : ListeningSockets(ReadAll(absl::StrCat(process, "/net/", protocol)))) {
        if (!sockets.contains(socket.inode) || !IsPublic(socket.address)) continue;
        const std::string address = socket.address.ToString();
        found.push_back(absl::StrCat(program, " (pid ", pid, ") listens on ", std::string(protocol).substr(0, 3), " ",
                                     socket.address.is_v4() ? address : absl::StrCat("[", address, "]"), ":",
                                     socket.port));
      }
    }
  }
  return found;
}

std::string WhyKeyIsOpen(const std::string& path) {
  const net::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  char buffer[kKeyFileMax_bytes];
  const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
  const absl::string_view text(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (!operate::KeyDigits(absl::StripAsciiWhitespace(text)).has_value()) return "";
  const std::string why = operate::WhyNotSecret(info, path);
  return why.empty() ? "" : absl::StrCat(path, " ", why);
}

std::vector<std::string> OpenKeysIn(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (std::string why = WhyKeyIsOpen(entry->path().string()); !why.empty()) found.push_back(std::move(why));
  }
  return found;
}

}  // namespace hedgerow::cli
