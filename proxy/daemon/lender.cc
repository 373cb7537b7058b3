// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/lender.h"

namespace hedgerow {

bool Lender::Look(const std::string& service, bool bad) {
  const auto found = services_.find(service);
  if (found != services_.end() && found->second.pause > 0) return --found->second.pause == 0;
  if (!bad) {
    if (found != services_.end()) services_.erase(found);
    return false;
  }
  Bad& now = services_[service];
  if (++now.seconds == kBadSeconds) now = {.seconds = 0, .pause = kPauseSeconds};
  return now.seconds <= 1;  // the first time the rules may be what is missing
}

std::set<std::string> Lender::given_back() const {
  std::set<std::string> names;
  for (const auto& [name, bad] : services_)
    if (bad.pause > 0) names.insert(name);
  return names;
}

}  // namespace hedgerow
