// SPDX-License-Identifier: Apache-2.0
//
// Status for people. Pure: Status message in, text out.

#ifndef HEDGEROW_PROXY_CLI_STATUS_TEXT_H_
#define HEDGEROW_PROXY_CLI_STATUS_TEXT_H_

#include <string>

#include "proxy/api/admin.pb.h"

namespace hedgerow::cli {

std::string StatusText(const v1::Status& status);

}  // namespace hedgerow::cli

#endif  // HEDGEROW_PROXY_CLI_STATUS_TEXT_H_
