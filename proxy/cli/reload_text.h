// SPDX-License-Identifier: Apache-2.0
//
// What `hedgerow reload` prints: the differences, and what became of them.

#ifndef HEDGEROW_PROXY_CLI_RELOAD_TEXT_H_
#define HEDGEROW_PROXY_CLI_RELOAD_TEXT_H_

#include <string>

#include "proxy/api/admin.pb.h"

namespace hedgerow::cli {

std::string ReloadText(const v1::ReloadReply& reply, bool dry_run);

}  // namespace hedgerow::cli

#endif  // HEDGEROW_PROXY_CLI_RELOAD_TEXT_H_
