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

// "/" is the page. `history` must outlive the server.
std::vector<operate::HttpRoute> PageRoutes(const History& history);

// For History: random, so that two starts within a second differ.
std::string NewBootText();

}  // namespace hedgerow
