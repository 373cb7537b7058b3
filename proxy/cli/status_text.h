// SPDX-License-Identifier: Apache-2.0
//
// Status for people. Pure: Status message in, text out.

#ifndef HEDGEROW_PROXY_CLI_STATUS_TEXT_H_
#define HEDGEROW_PROXY_CLI_STATUS_TEXT_H_

#include <string>

#include "proxy/api/admin.pb.h"

namespace hedgerow::cli {

std::string StatusText(const v1::Status& status);

// "3d 4h", "12m 5s": two units, for ages.
std::string AgeText(int64_t ns);

}  // namespace hedgerow::cli

#endif  // HEDGEROW_PROXY_CLI_STATUS_TEXT_H_
