// SPDX-License-Identifier: Apache-2.0
//
// What the packages' units give a program: a user, and a group that may look on.

#pragma once

#include <string>
#include <vector>

namespace hedgerow::operate {

// Where it is, the proxy is started by systemctl: a daemon of `up` would be unconfined, and in the unit's way.
inline constexpr char kProxyUnit[] = "/lib/systemd/system/hedgerowd.service";

// Which of these files the unit's user and group `user` cannot read, each with the commands that mend it. Only root can
// try: empty for another caller, and where there is no such user.
std::vector<std::string> WhyNotReadBy(const std::string& user, const std::vector<std::string>& files);

// "/run/x/monitor.sock" beside an owner's "/run/x/admin.sock"; empty beside one of another name.
std::string MonitorSocketBeside(const std::string& admin);
// `configured`, or else the socket beside its owner's, if the group exists on this host.
std::string MonitorSocketOr(const std::string& configured, const std::string& admin, const std::string& group);

}  // namespace hedgerow::operate
