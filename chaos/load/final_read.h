// SPDX-License-Identifier: Apache-2.0
//
// What the store holds when a run is over: every key that was used, read through the protocol from every server
// in turn. Reads may be repeated, so these are, until they are answered. Called by hr-kv-chaos; the records go
// into the judgement of the run.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "chaos/load/history_file.h"

namespace hedgerow::chaos {

// Clients of final reads count from here, by server.
constexpr uint32_t kFinalReader = 1'000'000;

// Reads a record's key once, and sets its value. DataLoss: the key holds what no client wrote.
using ReadKey = std::function<absl::Status(Record&)>;
using ConnectTo = std::function<absl::StatusOr<ReadKey>(const std::string& server)>;
absl::StatusOr<ReadKey> ConnectToHkv(const std::string& server);  // our own store

// `reads`: of all keys, as ReadsOfAllKeys makes them. DeadlineExceeded: a server did not answer all of it
// within `within`.
absl::StatusOr<std::vector<Record>> ReadFinalState(const std::vector<std::string>& servers,
                                                   const std::vector<Record>& reads, absl::Duration within,
                                                   const ConnectTo& connect_to = ConnectToHkv);

}  // namespace hedgerow::chaos
