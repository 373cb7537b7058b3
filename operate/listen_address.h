// SPDX-License-Identifier: Apache-2.0
//
// A listening TCP or unix socket from the text of a configuration, with errors that name the reason: libmicrohttpd
// would make the socket itself, and say only that it could not. Called by operate/http_server.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::operate {

struct Listener {
  net::UniqueFd fd;     // non-blocking
  std::string address;  // with the real port
  std::string path{};   // of a unix socket, which the caller removes in the end; empty: it is none
};

// Is it a text that ListenOn() takes?
bool IsListenText(const std::string& listen);

// "127.0.0.1:9464", "[::1]:9464", and port 0 takes a free one; or "unix:/PATH", a socket for its owner and the members
// of `group`. `setting` is the name of its key, for the errors: InvalidArgument when it is no such text, Unavailable
// when it cannot be listened on.
absl::StatusOr<Listener> ListenOn(const std::string& listen, const std::string& setting, const std::string& group = "");

}  // namespace hedgerow::operate
