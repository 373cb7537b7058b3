// SPDX-License-Identifier: Apache-2.0
//
// hedgerowd: the proxy's daemon, in the foreground. `hedgerow up` and systemd
// start it.

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "config/await_files.h"
#include "operate/arguments.h"
#include "operate/manual.h"
#include "operate/commit.h"
#include "operate/instance_lock.h"
#include "operate/log.h"
#include "operate/signals.h"
#include "operate/version.h"
#include "proxy/config/load.h"
#include "proxy/daemon/daemon.h"
#include "proxy/start/vips.h"
#include "proxy/start/readiness.h"

namespace {

const hedgerow::operate::Program& TheProgram() {
  static const auto* program = new hedgerow::operate::Program{
      .name = "hedgerowd",
      .summary = "serve a configuration of the hedging proxy in the foreground",
      .options = {{"config", "FILE", "the configuration, hedgerow.yaml(5)", true},
                  {"ready-fd", "N", "report readiness, or the start's error, to this descriptor"},
                  {"version", "", "print the version"},
                  {"help", "", "print this text"}},
      .notes =
          {"The log goes to stderr. `hedgerow up` and the unit hedgerowd.service start it.",
           "SIGTERM ends the daemon and leaves its kernel part at work for the next one, which takes it over. SIGINT and "
           "`hedgerow down` take everything down. SIGHUP reads the configuration again and applies it; `hedgerow reload` "
           "does the same and prints the result."},
      .exit_codes = {{"0", "ended by SIGTERM, SIGINT or `hedgerow down`"},
                     {"1", "failure; the message has the reason"},
                     {"2", "usage or configuration error"},
                     {"4", "a capability is missing"}},
      .files = {{"/etc/hedgerow/hedgerow.yaml", "the configuration that the unit serves"}},
      .see_also = {"hedgerow(8)", "hedgerow.yaml(5)"}};
  return *program;
}

int UsageError(const std::string& text) {
  fprintf(stderr, "hedgerowd: %s\n%s", text.c_str(), hedgerow::operate::HelpOf(TheProgram()).c_str());
  return hedgerow::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  hedgerow::operate::BeginProgram();
  const auto arguments =
      hedgerow::operate::ParseArguments({argv + 1, argv + argc}, {"config", "ready-fd"}, {"man", "completion"});
  if (!arguments.ok()) return UsageError(std::string(arguments.status().message()));
  if (!arguments->words.empty()) return UsageError("unknown argument " + arguments->words[0]);
  if (arguments->json()) return UsageError("unknown argument --json");
  for (const char* kind : {"help", "man", "completion"}) {
    if (!arguments->Has(kind)) continue;
    fputs(hedgerow::operate::TextOf(TheProgram(), kind).c_str(), stdout);
    return hedgerow::kExitOk;
  }
  if (arguments->Has("version")) {
    printf("hedgerowd %s (commit %s of %s)\n", hedgerow::operate::kVersion, hedgerow::operate::kCommit,
           hedgerow::operate::kCommitDate);
    return hedgerow::kExitOk;
  }
  int ready_fd = -1;
  if (arguments->Has("ready-fd") && !absl::SimpleAtoi(arguments->Get("ready-fd"), &ready_fd))
    return UsageError("--ready-fd wants a number");
  const std::string config_file = arguments->Get("config");
  if (config_file.empty()) return UsageError("--config FILE is missing");

  hedgerow::Readiness readiness(ready_fd);
  const hedgerow::net::UniqueFd signals = hedgerow::operate::HearSignals();
  hedgerow::v1::Config config;
  const auto load = [&](hedgerow::config::Diagnostics& errors) {
    config = hedgerow::config::LoadFile(config_file, errors, hedgerow::config::KeyFiles::kRead);
    hedgerow::MoveOwnAddresses(config);
    if (ready_fd >= 0 || !errors.empty()) return;
    // RunDaemon() takes it for good.
    const absl::Status lock = hedgerow::InstanceLock::Acquire(hedgerow::kRunFolder, config.instance()).status();
    if (absl::IsAborted(lock)) errors.Add({}, "", lock.message(), {}, /*may_come=*/true);
  };
  hedgerow::config::Diagnostics errors(config_file);
  absl::Status loaded;
  if (ready_fd >= 0) {  // an operator waits for the answer
    load(errors);
    loaded = errors.ToStatus();
  } else {
    loaded = hedgerow::config::AwaitFiles(config_file, signals.get(), load);
  }
  if (absl::IsCancelled(loaded)) return hedgerow::kExitOk;
  if (!loaded.ok()) {
    const std::string text(loaded.message());
    hedgerow::LogError(text);
    readiness.Failed(hedgerow::kExitUsage, text);
    return hedgerow::kExitUsage;
  }
  return hedgerow::RunDaemon(config, config_file, signals.get(), readiness);
}
