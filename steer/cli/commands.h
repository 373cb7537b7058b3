// SPDX-License-Identifier: Apache-2.0
//
// The commands of `hedgerow steer`, which is hedgerow-steer: each prints and returns an exit code. The table of all is
// in commands.cc; finding the command and help are operate/command_line.h's.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "operate/command_line.h"
#include "steer/run.h"
#include "steer/settings.h"

namespace hedgerow::steer::cli {

using operate::Arguments;
using operate::Call;
using enum operate::ExitCode;

const operate::Program& TheProgram();

// --run-dir and --name; without a name the only group. The errors list the groups.
absl::StatusOr<Places> FindGroup(const Arguments& arguments);
// A word of --empty.
struct Policy {
  absl::string_view name;
  hr_steer_empty empty;
};
// The settings of `run` and `adopt` alike: name, address, folders, policy (the first one by default), sources.
// InvalidArgument names the option.
absl::StatusOr<Settings> CommonSettings(const Arguments& arguments, absl::Span<const Policy> policies);
// A duration above 0, or `otherwise` without the option.
absl::StatusOr<absl::Duration> DurationOption(const Arguments& arguments, const std::string& name,
                                              absl::Duration otherwise);
absl::StatusOr<int64_t> NumberOption(const Arguments& arguments, const std::string& name, int64_t otherwise,
                                     int64_t least, int64_t most);
// A word of a command: "3" as a number of at least 0.
absl::StatusOr<uint32_t> NumberWord(const std::string& word, const std::string& what);

// Says why a start failed, to the service manager too, and returns the exit code.
int FailStart(const Call& call, const absl::Status& status);
// Serves a group in the foreground, and prints a line when it is ready.
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
int RunReattach(const Call& call);
int RunStop(const Call& call);
int RunClean(const Call& call);
int RunVersion(const Call& call);

}  // namespace hedgerow::steer::cli
