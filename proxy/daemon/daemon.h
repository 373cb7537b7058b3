// SPDX-License-Identifier: Apache-2.0
//
// The life of hedgerowd: checks, start, serving, end. Called by main.cc with
// the configuration already loaded.

#pragma once

#include <string>

#include "proxy/api/config.pb.h"
#include "proxy/start/readiness.h"

namespace hedgerow {

// Returns the exit code. Everything made is removed by then, whatever it is, but after SIGTERM: then the kernel
// part works on, for the next daemon.
// `signals`: HearSignals().
int RunDaemon(const v1::Config& config, const std::string& config_file, int signals, Readiness& readiness);

}  // namespace hedgerow
