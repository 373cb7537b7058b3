// SPDX-License-Identifier: Apache-2.0
//
// What the files of ProxyInstance share: proxy_instance.cc, proxy_clock.cc,
// proxy_repair.cc and proxy_adopt.cc.

#ifndef HEDGEROW_PROXY_DAEMON_PROXY_INSTANCE_PARTS_H_
#define HEDGEROW_PROXY_DAEMON_PROXY_INSTANCE_PARTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proxy/api/config.pb.h"
#include "proxy/daemon/answer_history.h"
#include "proxy/data_plane/pinned_array.h"

namespace hedgerow {

inline absl::Status Annotate(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", std::string(status.message())));
}

inline std::string AnswersPath(const std::string& pin_folder) { return absl::StrCat(pin_folder, "/answers"); }

inline PinnedArraySpec AnswersSpec(const v1::Config& config) {
  uint32_t backends = 0;
  for (const v1::Service& service : config.services())
    backends += static_cast<uint32_t>(service.backends_size());
  return {.name = "hr_answers", .value_bytes = sizeof(AnswerHistory::Memory), .entries = backends};
}

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_PROXY_INSTANCE_PARTS_H_
