// SPDX-License-Identifier: Apache-2.0
//
// The live page as routes of the daemon's HTTP server: the files of assets/, embedded in the program, and the data
// that they ask for once a second (proxy/api/page.proto). Called by the daemon.

#pragma once

#include <string>
#include <vector>

#include "operate/http_server.h"
#include "proxy/page/history.h"

namespace hedgerow {

inline constexpr char kPageDataPath[] = "/api/v1/page";

inline constexpr char kSteerDataPath[] = "/api/v1/steer";

// "/" is the page. `history` must outlive the server. `steer_run_dir`: the folder of the groups of `hedgerow steer`.
std::vector<operate::HttpRoute> PageRoutes(const History& history, const std::string& steer_run_dir);

// For History: random, so that two starts within a second differ.
std::string NewBootText();

}  // namespace hedgerow
