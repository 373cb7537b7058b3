// SPDX-License-Identifier: Apache-2.0
//
// Textual addresses into the 16-byte form of the kernel's maps.
#ifndef HEDGEROW_PROXY_DATA_PLANE_ENDPOINT_H_
#define HEDGEROW_PROXY_DATA_PLANE_ENDPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "bpf/abi/base_abi.h"

namespace hedgerow {

// IPv4 ("10.0.0.1", mapped into ::ffff:0:0/96) or IPv6. kInvalidArgument names the text.
absl::StatusOr<hr_address> ParseAddress(const std::string& text);
// `port` in host order.
absl::StatusOr<hr_endpoint> ParseEndpoint(const std::string& address, uint16_t port);

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_ENDPOINT_H_
