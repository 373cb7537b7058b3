// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/exposure.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "net/networks.h"
#include "net/unique_fd.h"
#include "operate/file_rights.h"
#include "operate/key_file.h"
#include "steer/process.h"
#include "steer/sock_diag.h"

namespace hedgerow::cli {
namespace {

constexpr size_t kKeyFileMax_bytes = 256;

}  // namespace

bool IsPublic(const net::IpAddress& address) {
  static const auto* shared = new net::Network(*net::Network::Parse("100.64.0.0/10"));  // RFC 6598
  return !net::PrivateNetworks().Contains(address.mapped()) && !shared->Contains(address);
}

std::vector<std::string> PublicPortsOf(const std::string& program) {
  std::vector<std::string> found;
  std::map<uint32_t, std::string> open;  // by inode
  for (const auto transport : {steer::Transport::kUdp, steer::Transport::kTcp}) {
    const auto sockets = steer::ListSockets(transport, 0, transport == steer::Transport::kUdp ? ~0u : 1u << TCP_LISTEN);
    if (!sockets.ok()) continue;
    for (const steer::InetSocket& each : *sockets)
      if (each.peer_port == 0 && IsPublic(each.local))
        open[each.inode] =
            absl::StrCat(steer::TransportText(transport), " ", steer::Listen{each.local, each.local_port}.ToString());
  }
  std::set<uint32_t> inodes;
  for (const auto& [inode, text] : open) inodes.insert(inode);
  // The kernel keeps 15 bytes of a name.
  for (const steer::Process& process :
       steer::ProcessesWith(inodes, [&](const auto& each) { return each.name == program.substr(0, 15); })) {
    const auto held = steer::SocketsOf(process, inodes);
    if (!held.ok()) continue;
    for (const auto& [inode, descriptor] : held->descriptors)
      found.push_back(absl::StrCat(program, " (pid ", process.pid, ") listens on ", open[inode]));
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
