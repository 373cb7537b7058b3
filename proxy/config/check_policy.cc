// SPDX-License-Identifier: Apache-2.0
//
// Rules about the adaptive delay and about the preferred backend; see the header.

#include "proxy/config/check_policy.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"

namespace hedgerow::config {
namespace {

void CheckAdaptive(const v1::Service& service, const std::string& path, const Locations& locations,
                   Diagnostics& errors) {
  const v1::AdaptiveDelay& adaptive = service.adaptive();
  const auto add = [&](const std::string& at, const std::string& message) {
    errors.Add(locations.Find(at), at, message);
  };
  if (adaptive.floor_ns() == 0 || adaptive.cap_ns() == 0) return;  // refused already
  const std::string cap = absl::StrCat(path, ".cap");
  if (adaptive.cap_ns() < adaptive.floor_ns()) {
    add(cap, absl::StrCat("got \"", FormatDurationNs(adaptive.cap_ns()), "\", expected at least the floor of ",
                          FormatDurationNs(adaptive.floor_ns())));
  } else if (service.deadline_ns() != 0 && adaptive.cap_ns() >= service.deadline_ns()) {
    add(cap, absl::StrCat("got \"", FormatDurationNs(adaptive.cap_ns()),
                          "\", expected less than the deadline of ", FormatDurationNs(service.deadline_ns())));
  }
}

}  // namespace

void CheckPolicies(const v1::Config& config, const Locations& locations, Diagnostics& errors) {
  for (int i = 0; i < config.services_size(); ++i) {
    const v1::Service& service = config.services(i);
    const std::string path = absl::StrCat("services[", i, "]");
    if (service.has_adaptive()) CheckAdaptive(service, absl::StrCat(path, ".adaptive"), locations, errors);
    if (service.prefer() == v1::PREFER_FASTEST && service.has_cluster()) {
      const std::string prefer = absl::StrCat(path, ".prefer");
      errors.Add(
          locations.Find(prefer), prefer,
          "got \"fastest\", expected \"primary\" with a cluster (its leader gets the requests; another member "
          "would only send them on to it)");
    }
  }
}

}  // namespace hedgerow::config
