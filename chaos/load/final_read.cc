// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/final_read.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/udp_socket.h"
#include "cluster/client/hkv_client.h"

namespace hedgerow::chaos {
namespace {

absl::StatusOr<Record> ReadOnce(client::HkvClient& client, Record record) {
  record.sent_ns = record.intended_ns = static_cast<uint64_t>(bench::MonotonicNs());
  const absl::StatusOr<std::string> value = client.Get(KeyName(record.kind, record.key), absl::Milliseconds(500));
  record.ended_ns = static_cast<uint64_t>(bench::MonotonicNs());
  record.ending = Ending::kOk;
  if (absl::IsNotFound(value.status())) return record;
  if (!value.ok()) return value.status();
  if (absl::SimpleAtoi(*value, &record.value)) return record;
  return absl::DataLossError(absl::StrCat("holds '", *value, "', which is no number"));
}

absl::StatusOr<Record> ReadAgain(client::HkvClient& client, const Record& record, absl::Time until) {
  while (true) {
    absl::StatusOr<Record> read = ReadOnce(client, record);
    if (read.ok() || absl::IsDataLoss(read.status()) || absl::Now() > until) return read;
    absl::SleepFor(absl::Milliseconds(20));  // NOT_LEADER and OVERLOADED come back at once
  }
}

}  // namespace

absl::StatusOr<std::vector<Record>> ReadFinalState(const std::vector<std::string>& servers,
                                                   const std::vector<Record>& reads, absl::Duration within) {
  std::vector<Record> records;
  for (uint32_t i = 0; i < servers.size(); ++i) {
    const absl::StatusOr<std::unique_ptr<client::HkvClient>> client = client::HkvClient::Connect(servers[i]);
    if (!client.ok()) return client.status();
    const absl::Time until = absl::Now() + within;
    for (Record read : reads) {
      read.client = kFinalReader + i;
      const absl::StatusOr<Record> record = ReadAgain(**client, read, until);
      if (!record.ok()) {
        return absl::DeadlineExceededError(absl::StrCat("cannot read ", KeyName(read.kind, read.key), " from ",
                                                        servers[i], ": ", record.status().message()));
      }
      records.push_back(*record);
    }
  }
  return records;
}

}  // namespace hedgerow::chaos
