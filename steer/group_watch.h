// SPDX-License-Identifier: Apache-2.0
//
// Checks that the kernel still runs the group's program, and that no other process has sockets on the address. The
// supervisor calls it once a second.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "steer/kernel_group.h"
#include "steer/settings.h"

namespace hedgerow::steer {

class GroupWatch {
 public:
  GroupWatch(const KernelGroup* kernel, const Settings& settings) : kernel_(kernel), settings_(settings) {}

  // `sockets`: all of the group's. Updates problems(); begin and end of each are logged.
  void Look(Transport transport, const std::vector<int>& sockets);
  std::vector<std::string> problems() const;

 private:
  std::string Takeover(Transport transport, int socket) const;
  std::string Strangers(Transport transport, const std::vector<int>& sockets);

  const KernelGroup* kernel_;
  Settings settings_;
  std::string takeovers_[2] = {};
  std::string strangers_[2] = {};
  std::set<uint32_t> stranger_inodes_[2] = {};  // described by strangers_: finding their processes takes long
};

}  // namespace hedgerow::steer
