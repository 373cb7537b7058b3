// SPDX-License-Identifier: Apache-2.0
//
// Asking for all privileges at once; see the header.

#include "proxy/daemon/privileges.h"

#include <errno.h>
#include <sys/socket.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proxy/net/capabilities.h"
#include "proxy/net/unique_fd.h"

namespace hedgerow {
namespace {

constexpr std::array kWanted = {net::Capability::kNetAdmin, net::Capability::kBpf, net::Capability::kPerfmon};

// Protocol 0: the socket would receive nothing.
bool MayOpenPacketSockets() {
  const net::UniqueFd probe(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  return probe.valid() || (errno != EPERM && errno != EACCES);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MissingPrivileges() {
  const auto missing = net::MissingCapabilities(kWanted);
  if (!missing.ok()) return missing.status();
  std::vector<std::string> names;
  for (const net::Capability capability : *missing) {
    names.push_back(
        absl::StrCat(std::string(net::Name(capability)), " (", std::string(net::WhatFor(capability)), ")"));
  }
  if (!MayOpenPacketSockets()) names.push_back("CAP_NET_RAW (measuring the clock)");
  return names;
}

absl::Status RequirePrivileges() {
  const auto missing = MissingPrivileges();
  if (!missing.ok()) return missing.status();
  if (missing->empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("missing capabilities: ", absl::StrJoin(*missing, ", "), "; run as root, or grant them"));
}

}  // namespace hedgerow
