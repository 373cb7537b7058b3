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

absl::StatusOr<Record> ReadAgain(const ReadKey& read_key, Record record, absl::Time until) {
  while (true) {
    record.sent_ns = record.intended_ns = static_cast<uint64_t>(bench::MonotonicNs());
    const absl::Status read = read_key(record);
    record.ended_ns = static_cast<uint64_t>(bench::MonotonicNs());
    record.ending = Ending::kOk;
    if (read.ok()) return record;
    if (absl::IsDataLoss(read) || absl::Now() > until) return read;
    absl::SleepFor(absl::Milliseconds(20));  // NOT_LEADER and OVERLOADED come back at once
  }
}

absl::Status ReadFromHkv(client::HkvClient& client, Record& record) {
  const absl::StatusOr<std::string> value = client.Get(KeyName(record.kind, record.key), absl::Milliseconds(500));
  if (absl::IsNotFound(value.status())) return absl::OkStatus();
  if (!value.ok()) return value.status();
  if (absl::SimpleAtoi(*value, &record.value)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("holds '", *value, "', which is no number"));
}

}  // namespace

absl::StatusOr<std::vector<Record>> ReadFinalState(const std::vector<std::string>& servers,
                                                   const std::vector<Record>& reads, absl::Duration within,
                                                   const ConnectTo& connect_to) {
  std::vector<Record> records;
  for (uint32_t i = 0; i < servers.size(); ++i) {
    const absl::StatusOr<ReadKey> read_key = connect_to(servers[i]);
    if (!read_key.ok()) return read_key.status();
    const absl::Time until = absl::Now() + within;
    for (Record read : reads) {
      read.client = kFinalReader + i;
      const absl::StatusOr<Record> record = ReadAgain(*read_key, read, until);
      if (!record.ok()) {
        return absl::DeadlineExceededError(absl::StrCat("cannot read ", KeyName(read.kind, read.key), " from ",
                                                        servers[i], ": ", record.status().message()));
      }
      records.push_back(*record);
    }
  }
  return records;
}

absl::StatusOr<ReadKey> ConnectToHkv(const std::string& server) {
  absl::StatusOr<std::unique_ptr<client::HkvClient>> client = client::HkvClient::Connect(server);
  if (!client.ok()) return client.status();
  return [client = std::shared_ptr(*std::move(client))](Record& record) { return ReadFromHkv(*client, record); };
}

}  // namespace hedgerow::chaos
