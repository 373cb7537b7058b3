// SPDX-License-Identifier: Apache-2.0
//
// Which services in place are their owners' for now (docs/adr/0061): those that clients have got nothing from for
// kBadSeconds. While one is given back nothing shows that it would be served again: it is tried after kPauseSeconds.
// Owned by the guardian; on the event loop's thread.
#pragma once

#include <map>
#include <set>
#include <string>

namespace hedgerow {

class Lender {
 public:
  static constexpr int kBadSeconds = 5;  // longer than a rule that was taken away takes to be made again
  static constexpr int kPauseSeconds = 60;
  // Once a second, of each service: whether it is bad. True: take over, or give back, at once.
  bool Look(const std::string& service, bool bad);
  std::set<std::string> given_back() const;

 private:
  struct Bad {
    int seconds = 0;
    int pause = 0;  // seconds for which it is given back
  };
  std::map<std::string, Bad> services_;
};

}  // namespace hedgerow
