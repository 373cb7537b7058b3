// SPDX-License-Identifier: Apache-2.0
//
// hedgerowd: the proxy's daemon, in the foreground. `hedgerow up` and systemd
// start it.

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "operate/arguments.h"
#include "operate/version.h"
#include "proxy/config/load.h"
#include "proxy/daemon/daemon.h"
#include "proxy/start/readiness.h"

namespace {

constexpr char kUsage[] =
    "usage: hedgerowd --config FILE\n"
    "\n"
    "Serves the configuration in the foreground; logs to stderr. SIGTERM ends the daemon and leaves its kernel "
    "part at\n"
    "work for the next one, which takes it over; SIGINT and `hedgerow down` take everything down. SIGHUP reads "
    "the\n"
    "configuration again and goes over to it (`hedgerow reload` says what came of it).\n"
    "\n"
    "  --config FILE   the configuration (docs/config.md)\n"
    "  --ready-fd N    report readiness or the start's error to this descriptor\n"
    "  --version       print the version\n"
    "  --help          print this text\n";

int UsageError(const std::string& text) {
  fprintf(stderr, "hedgerowd: %s\n%s", text.c_str(), kUsage);
  return hedgerow::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = hedgerow::operate::ParseArguments({argv + 1, argv + argc}, {"config", "ready-fd"});
  if (!arguments.ok()) return UsageError(std::string(arguments.status().message()));
  if (!arguments->words.empty()) return UsageError("unknown argument " + arguments->words[0]);
  if (arguments->json()) return UsageError("unknown argument --json");
  if (arguments->Has("help")) {
    fputs(kUsage, stdout);
    return hedgerow::kExitOk;
  }
  if (arguments->Has("version")) {
    printf("hedgerowd %s\n", hedgerow::operate::kVersion);
    return hedgerow::kExitOk;
  }
  int ready_fd = -1;
  if (arguments->Has("ready-fd") && !absl::SimpleAtoi(arguments->Get("ready-fd"), &ready_fd))
    return UsageError("--ready-fd wants a number");
  const std::string config_file = arguments->Get("config");
  if (config_file.empty()) return UsageError("--config FILE is missing");

  hedgerow::Readiness readiness(ready_fd);
  const auto config = hedgerow::config::LoadFile(config_file, hedgerow::config::KeyFiles::kRead);
  if (!config.ok()) {
    const std::string text(config.status().message());
    fprintf(stderr, "%s\n", text.c_str());
    readiness.Failed(hedgerow::kExitUsage, text);
    return hedgerow::kExitUsage;
  }
  return hedgerow::RunDaemon(*config, config_file, readiness);
}
