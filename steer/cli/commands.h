// SPDX-License-Identifier: Apache-2.0
//
// The commands of `hedgerow steer`, which is hedgerow-steer: each prints and returns an exit code. The table of all is
// in commands.cc; finding the command and help are operate/command_line.h's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operate/command_line.h"
#include "steer/api/steer.pb.h"
#include "steer/group.h"
#include "steer/settings.h"

namespace hedgerow::steer::cli {

using operate::Arguments;
using operate::Call;
using enum operate::ExitCode;

const operate::Program& TheProgram();

// --run-dir and --name; without a name the only group. The errors list the groups.
absl::StatusOr<Places> FindGroup(const Arguments& arguments);
// Says why a start failed, to the service manager too, and returns the exit code.
int FailStart(const Call& call, const absl::Status& status);
// On the main thread, before the loop runs.
using StartGroup = std::function<absl::StatusOr<std::unique_ptr<Group>>(EventLoop* loop)>;
// Serves a group in the foreground until SIGTERM, SIGINT or `stop`, and prints a line when it is ready. SIGHUP reloads.
int ServeGroup(const Call& call, const Settings& settings, const StartGroup& start);

int RunRun(const Call& call);
int RunAdopt(const Call& call);
int RunBind(const Call& call);
int RunShow(const Call& call);
int RunExplain(const Call& call);
int RunResize(const Call& call);
int RunDrain(const Call& call);
int RunUndrain(const Call& call);
int RunWeights(const Call& call);
int RunRestart(const Call& call);
int RunReload(const Call& call);
int RunStop(const Call& call);
int RunClean(const Call& call);
int RunVersion(const Call& call);

// What they print for people. Pure.

// The first row is the heading; columns of numbers stand to the right.
std::string TableText(const std::vector<std::vector<std::string>>& rows);
std::string GroupText(const v1::Group& group);
std::string ChangeText(const v1::Change& change);
std::string ExplanationText(const v1::Explanation& explanation);
// "IPv4 192.0.2.7", "IPv6 2001:db8::/64", "device 7", "field 0a0b"
std::string SourceText(const hr_steer_source& source, const hr_steer_config& config);

}  // namespace hedgerow::steer::cli
