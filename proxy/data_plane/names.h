// SPDX-License-Identifier: Apache-2.0
//
// Stable names of counters, reasons and health states, for the CLI, metrics and documents. A number without a
// name is not used by the kernel programs.
#ifndef HEDGEROW_PROXY_DATA_PLANE_NAMES_H_
#define HEDGEROW_PROXY_DATA_PLANE_NAMES_H_

#include "absl/strings/string_view.h"
#include "bpf/abi/request_abi.h"
#include "bpf/abi/stats_abi.h"

namespace hedgerow {

// snake_case, such as "won_by_first"; empty when the number has no meaning.
absl::string_view CounterName(int counter);
// snake_case, such as "retransmission"; empty when the number has no meaning.
absl::string_view ReasonName(int reason);
// "forwarded", "not_hedged", "dropped", "untouched" or "bound": which family a reason belongs to.
absl::string_view ReasonKind(int reason);
// "healthy", "suspect", "down".
absl::string_view HealthName(int health);

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_NAMES_H_
