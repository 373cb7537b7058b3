// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/coordinator.h"

#include <utility>

namespace hedgerow::bench {
namespace {

constexpr size_t kIdBytes = 4;

uint32_t IdOf(std::span<const uint8_t> bytes) {
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

}  // namespace

Coordinator::Coordinator(Options options, ToServer to_server, ToClient to_client)
    : options_(options),
      to_server_(std::move(to_server)),
      to_client_(std::move(to_client)),
      outstanding_(options.servers) {}

void Coordinator::OnRequest(std::span<const uint8_t> request, const Address& client, int64_t now_ns) {
  ++counters_.requests;
  if (request.size() < kIdBytes) {
    ++counters_.refused;
    return;
  }
  // First come, first served: nothing overtakes what waits.
  const std::optional<size_t> server = queue_.empty() ? MostIdle(std::nullopt) : std::nullopt;
  if (server.has_value()) {
    Dispatch(request, client, *server, now_ns);
  } else if (queue_.size() < options_.most_queued) {
    ++counters_.queued;
    queue_.push_back({client, {request.begin(), request.end()}});
  } else {
    ++counters_.refused;
  }
}

void Coordinator::OnAnswer(size_t server, std::span<const uint8_t> answer, int64_t now_ns) {
  const auto found = answer.size() < kIdBytes ? requests_.end() : requests_.find(IdOf(answer));
  const auto bit = static_cast<uint8_t>(1 << server);
  if (found == requests_.end() || (found->second.outstanding & bit) == 0) {
    ++counters_.stray;
    return;
  }
  Request& request = found->second;
  request.outstanding &= static_cast<uint8_t>(~bit);
  --outstanding_[server];
  if (request.answered) {
    ++counters_.losers;
  } else {
    request.answered = true;
    to_client_(request.client, answer);
  }
  if (request.outstanding == 0) requests_.erase(found);
  SendQueued(now_ns);
}

void Coordinator::Forget(int64_t now_ns) {
  for (; !sent_.empty() && sent_.front().forget_ns <= now_ns; sent_.pop_front()) {
    const Sent& sent = sent_.front();
    const auto found = requests_.find(sent.id);
    const auto bit = static_cast<uint8_t>(1 << sent.server);
    if (found == requests_.end() || found->second.serial != sent.serial || (found->second.outstanding & bit) == 0)
      continue;
    found->second.outstanding &= static_cast<uint8_t>(~bit);
    --outstanding_[sent.server];
    ++counters_.forgotten;
    if (found->second.outstanding == 0) requests_.erase(found);
  }
  SendQueued(now_ns);
}

void Coordinator::SendQueued(int64_t now_ns) {
  while (!queue_.empty()) {
    const std::optional<size_t> server = MostIdle(std::nullopt);
    if (!server.has_value()) return;
    const Queued head = std::move(queue_.front());
    queue_.pop_front();
    Dispatch(head.request, head.client, *server, now_ns);
  }
}

std::optional<size_t> Coordinator::MostIdle(std::optional<size_t> except) {
  std::optional<size_t> found;
  for (size_t step = 0; step < outstanding_.size(); ++step) {
    const size_t i = (turn_ + step) % outstanding_.size();
    if (i == except || outstanding_[i] >= options_.workers) continue;
    if (!found.has_value() || outstanding_[i] < outstanding_[*found]) found = i;
  }
  turn_ = (turn_ + 1) % outstanding_.size();
  return found;
}

void Coordinator::Dispatch(std::span<const uint8_t> request, const Address& client, size_t server, int64_t now_ns) {
  const auto [place, inserted] = requests_.try_emplace(IdOf(request));
  if (!inserted) {  // The copies of another are still out: their answers could not be told apart.
    ++counters_.refused;
    return;
  }
  place->second.serial = next_serial_++;
  place->second.client = client;
  SendTo(server, place->second, request, now_ns);
  if (const std::optional<size_t> other = MostIdle(server)) SendTo(*other, place->second, request, now_ns);
}

void Coordinator::SendTo(size_t server, Request& request, std::span<const uint8_t> bytes, int64_t now_ns) {
  request.outstanding |= static_cast<uint8_t>(1 << server);
  ++outstanding_[server];
  ++counters_.copies;
  sent_.push_back({now_ns + options_.forget_ns, IdOf(bytes), request.serial, server});
  to_server_(server, bytes);
}

}  // namespace hedgerow::bench
