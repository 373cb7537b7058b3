// SPDX-License-Identifier: Apache-2.0
//
// hedgerowd: the proxy's daemon, in the foreground. `hedgerow up` and systemd
// start it.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
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

struct Arguments {
  std::string config_file;
  int ready_fd = -1;
};

int UsageError(const std::string& text) {
  fprintf(stderr, "hedgerowd: %s\n%s", text.c_str(), kUsage);
  return hedgerow::kExitUsage;
}

// "--name VALUE" or "--name=VALUE"; false when the argument is another one.
bool Option(int argc, char** argv, int& i, absl::string_view name, std::string& value) {
  absl::string_view argument = argv[i];
  if (argument == name && i + 1 < argc) {
    value = argv[++i];
    return true;
  }
  if (!absl::ConsumePrefix(&argument, name) || !absl::ConsumePrefix(&argument, "=")) return false;
  value = std::string(argument);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string value;
    if (strcmp(argv[i], "--help") == 0) {
      fputs(kUsage, stdout);
      return hedgerow::kExitOk;
    }
    if (strcmp(argv[i], "--version") == 0) {
      printf("hedgerowd %s\n", hedgerow::operate::kVersion);
      return hedgerow::kExitOk;
    }
    if (Option(argc, argv, i, "--config", value)) {
      arguments.config_file = value;
    } else if (Option(argc, argv, i, "--ready-fd", value)) {
      if (!absl::SimpleAtoi(value, &arguments.ready_fd)) return UsageError("--ready-fd wants a number");
    } else {
      return UsageError(std::string("unknown argument ") + argv[i]);
    }
  }
  if (arguments.config_file.empty()) return UsageError("--config FILE is missing");

  hedgerow::Readiness readiness(arguments.ready_fd);
  const auto config = hedgerow::config::LoadFile(arguments.config_file, hedgerow::config::KeyFiles::kRead);
  if (!config.ok()) {
    const std::string text(config.status().message());
    fprintf(stderr, "%s\n", text.c_str());
    readiness.Failed(hedgerow::kExitUsage, text);
    return hedgerow::kExitUsage;
  }
  return hedgerow::RunDaemon(*config, arguments.config_file, readiness);
}
