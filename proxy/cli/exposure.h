// SPDX-License-Identifier: Apache-2.0
//
// What is open on a host, as `hedgerow doctor` names it: ports that other networks reach, files with keys that other
// users can read. Changes nothing.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "net/ip_address.h"

namespace hedgerow::cli {

// Whether hosts beyond this one's private networks may reach it: neither loopback, nor private (RFC 1918), shared
// (RFC 6598), link-local or unique local (RFC 4193). The unspecified address may be reached at any of the host's.
bool IsPublic(const net::IpAddress& address);

// "hedgerow-node (pid 17) listens on udp 0.0.0.0:4801", for the processes of that name that this user may look into.
std::vector<std::string> PublicPortsOf(const std::string& program);

// Why the file, if it holds a key, is none ("/etc/x.key can be read by everybody (mode 0644)..."); empty if all is
// well, or if it is no key at all.
std::string WhyKeyIsOpen(const std::string& path);

// The same for every file of a folder. Empty for a folder that is not there or may not be read.
std::vector<std::string> OpenKeysIn(const std::string& folder);

}  // namespace hedgerow::cli
