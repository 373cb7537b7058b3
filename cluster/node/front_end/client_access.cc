// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/client_access.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"

namespace hedgerow::node {
namespace {

bool Covers(const std::vector<std::string>& prefixes, const std::string& key) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&key](const std::string& prefix) { return absl::StartsWith(key, prefix); });
}

// What these two answer tells what the key holds.
bool Reads(kv::OperationKind kind) {
  return kind == kv::OperationKind::kCompareAndSet || kind == kv::OperationKind::kIncrement;
}

// OPEN, CANCEL and a WRITE without operations concern no key: a session is its client's by the token. They take places
// and memory of the store all the same, of which a client that may write no key gets none.
void CheckRights(const NamedClient& client, const wire::HkvRequest& request, ClientAccess::Verdict& verdict) {
  const auto need = [&](const std::vector<std::string>& prefixes, const std::string& key, wire::HkvDenial why) {
    if (verdict.denied || Covers(prefixes, key)) return;
    verdict.denied = true;
    verdict.why = why;
    verdict.key = key;
  };
  if (wire::RowOf(request.kind).writes && client.write.empty()) need(client.write, {}, wire::HkvDenial::kWrite);
  if (request.kind == wire::HkvKind::kGet) need(client.read, request.key, wire::HkvDenial::kRead);
  for (const kv::Operation& operation : request.operations) {
    need(client.write, operation.key, wire::HkvDenial::kWrite);
    if (Reads(operation.kind)) need(client.read, operation.key, wire::HkvDenial::kRead);
  }
}

bool IsFarFrom(uint64_t sent_ms, uint64_t now_ms) {
  return std::max(sent_ms, now_ms) - std::min(sent_ms, now_ms) > wire::kHkvClockTolerance_ms;
}

}  // namespace

ClientAccess::ClientAccess(bool anonymous, std::vector<NamedClient> clients, KeyNumber first)
    : anonymous_(anonymous), clients_(std::move(clients)), first_(first) {
  for (const NamedClient& client : clients_) {
    for (const wire::Key& key : client.keys) {
      by_name_.emplace(client.name, proofs_.size());
      proofs_.push_back({.client = &client, .key = key});
    }
  }
}

ClientAccess::Verdict ClientAccess::Judge(std::string_view datagram, const wire::HkvRequest& request,
                                          uint64_t now_ms) const {
  if (!wire::HasHkvTrailer(datagram)) return {.denied = !anonymous_, .why = wire::HkvDenial::kAnonymous};
  const NamedClient* client = nullptr;
  Verdict verdict = Prove(datagram, now_ms, client);
  if (!verdict.denied) CheckRights(*client, request, verdict);
  return verdict;
}

ClientAccess::Verdict ClientAccess::Prove(std::string_view datagram, uint64_t now_ms,
                                          const NamedClient*& client) const {
  const std::optional<wire::HkvTrailer> trailer = wire::FindHkvTrailer(datagram);
  if (trailer.has_value()) {
    const auto [begin, end] = by_name_.equal_range(trailer->client);
    for (auto known = begin; known != end; ++known) {
      const Proof& proof = proofs_[known->second];
      if (!wire::IsHkvTagRight(datagram, proof.key)) continue;
      client = proof.client;
      return {.proved_by = static_cast<KeyNumber>(first_ + known->second),
              .denied = IsFarFrom(trailer->sent_ms, now_ms),
              .why = wire::HkvDenial::kClock};
    }
  }
  return {.denied = true, .why = wire::HkvDenial::kUnproven};
}

uint64_t ClientAccess::ClientOf(KeyNumber number) const {
  return Find(number) == nullptr ? 0 : std::hash<std::string>()(proofs_[number - first_].client->name) | 1;
}

const wire::Key* ClientAccess::Find(KeyNumber number) const {
  const auto index = static_cast<size_t>(number) - first_;
  return number >= first_ && index < proofs_.size() ? &proofs_[index].key : nullptr;
}

// 0 means no key. There are far fewer than half of the numbers, so the one before and this one never share any.
ClientAccess::KeyNumber ClientAccess::next_number() const {
  constexpr size_t kHalf = std::numeric_limits<KeyNumber>::max() / 2;
  return first_ > kHalf ? 1 : static_cast<KeyNumber>(kHalf + 1);
}

}  // namespace hedgerow::node
