// SPDX-License-Identifier: Apache-2.0
//
// The commands of `hedgerow`: each prints and returns an exit code. Finding the command that was asked for,
// help and printing are operate/command_line.h's; the table of all commands is in commands.cc, main.cc runs it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operate/command_line.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::cli {

using operate::Arguments;
using operate::Call;
using enum operate::ExitCode;

inline constexpr char kDefaultSocket[] = "/run/hedgerow/admin.sock";

const operate::Program& TheProgram();

// The configuration that --config names. InvalidArgument when it has errors or no file is named.
absl::StatusOr<v1::Config> RequireConfig(const Arguments& arguments);

// --socket, else the configuration's, else the default. InvalidArgument when --config names a file with errors.
absl::StatusOr<std::string> SocketPath(const Arguments& arguments);
// --instance, else the configuration's, else "default".
absl::StatusOr<std::string> InstanceName(const Arguments& arguments);

// Which files of a configuration in /etc/hedgerow the unit's user cannot read, as root knows it (file_rights.h).
std::vector<std::string> ClosedToTheUnit(const Arguments& arguments, const v1::Config& config);

// Proxies of which something stands while no daemon runs.
absl::StatusOr<std::vector<std::string>> InstancesWithoutDaemon();

int RunValidate(const Call& call);
int RunPlan(const Call& call);
int RunUp(const Call& call);
int RunStatus(const Call& call);
int RunCheck(const Call& call);
int RunLeader(const Call& call);
int RunBypass(const Call& call);
int RunDryRun(const Call& call);
int RunDrain(const Call& call);
int RunUndrain(const Call& call);
int RunReload(const Call& call);
int RunDown(const Call& call);
int RunClean(const Call& call);
int RunDns(const Call& call);
int RunDoctor(const Call& call);
int RunSysdump(const Call& call);
int RunVersion(const Call& call);
int RunTop(const Call& call);
int RunTrace(const Call& call);

}  // namespace hedgerow::cli
