// SPDX-License-Identifier: Apache-2.0
//
// The loop. Order within a turn: read what has come (an answer that is here saves its copy), send copies that
// are due, give up, send what is due, wait.
#include "chaos/load/hkv_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <sys/random.h>

#include "absl/strings/str_cat.h"
#include "cluster/wire/hkv.h"

namespace hedgerow::chaos {
namespace {

constexpr size_t kClientsMax = 64;
constexpr uint64_t kOperationsMax = 20'000'000;
constexpr uint64_t kOpenWithin_ns = 10'000'000'000;
constexpr uint64_t kOpenAgainAfter_ns = 250'000'000;
constexpr uint64_t kTickEvery_ns = 250'000'000;
// How long to listen on for duplicates when everything has ended.
constexpr uint64_t kLinger_ns = 200'000'000;

uint64_t Now_ns() { return static_cast<uint64_t>(bench::MonotonicNs()); }

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  // Cannot fail for so few bytes once the machine is up.
  while (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
  }
  return number;
}

std::optional<uint64_t> ParseNumber(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

kv::Operation OperationOf(const Record& record) {
  if (record.kind == Kind::kIncrement) {
    return {.kind = kv::OperationKind::kIncrement, .key = KeyName(record.kind, record.key), .delta = 1};
  }
  return {
      .kind = kv::OperationKind::kPut, .key = KeyName(record.kind, record.key), .value = absl::StrCat(record.value)};
}

// What the answer says about the record's value; nothing if it makes no sense.
std::optional<uint64_t> ReportedValue(const Record& record, const wire::HkvAnswer& answer) {
  if (answer.status == wire::HkvStatus::kNotFound) return 0;
  if (record.kind == Kind::kPut) return record.value;
  if (record.kind == Kind::kGet) return ParseNumber(answer.value);
  return answer.values.size() == 1 ? ParseNumber(answer.values[0]) : std::nullopt;
}

}  // namespace

absl::Status CheckOptions(const LoadOptions& options) {
  if (options.servers.empty()) return absl::InvalidArgumentError("no server was given");
  if (options.clients == 0 || options.clients > kClientsMax || options.sessions == 0) {
    return absl::InvalidArgumentError(absl::StrCat("1 to ", kClientsMax, " clients, each with a session"));
  }
  if (options.interval_ns == 0 || options.timeout_ns == 0) {
    return absl::InvalidArgumentError("the interval and the time-out must be positive");
  }
  if (options.run_max_ns / options.interval_ns * options.clients > kOperationsMax) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kOperationsMax, " operations in a run"));
  }
  return absl::OkStatus();
}

absl::StatusOr<HkvLoad> HkvLoad::Make(const LoadOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (!options.application && options.servers.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a client that sends to one address was given ", options.servers.size()));
  }
  if (options.hedging.first_leader >= options.servers.size()) {
    return absl::InvalidArgumentError("the first leader is none of the servers");
  }
  std::vector<bench::Address> servers;
  for (const std::string& server : options.servers) {
    const absl::StatusOr<bench::Address> address = bench::ParseAddress(server);
    if (!address.ok()) return address.status();
    servers.push_back(*address);
  }
  HkvLoad load(options, std::move(servers));
  const size_t outstanding_max = options.timeout_ns / options.interval_ns + 1024;
  for (uint32_t i = 0; i < options.clients; ++i) {
    absl::StatusOr<bench::UdpSocket> socket = bench::UdpSocket::Open(load.servers_[0]);
    if (!socket.ok()) return socket.status();
    Client client{.socket = *std::move(socket),
                  .mix = OperationMix(options.mix, i),
                  .hedging = AppHedging(options.servers.size(), options.hedging),
                  .sessions = {}};
    for (uint32_t j = 0; j < options.sessions; ++j)
      client.sessions.emplace_back(kv::SessionName{.id = RandomNumber(), .token = RandomNumber()}, outstanding_max);
    load.clients_.push_back(std::move(client));
  }
  load.records_.reserve(options.run_max_ns / options.interval_ns * options.clients + kClientsMax);
  return load;
}

absl::Status HkvLoad::Open() {
  for (Client& client : clients_) {
    for (size_t i = 0; i < client.sessions.size(); ++i) {
      client::PendingRequests& requests = client.sessions[i];
      if (absl::Status status = OpenSession(client, requests, i); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Before the experiment, so again and again is allowed: the nonce makes all of them one session.
absl::Status HkvLoad::OpenSession(Client& client, client::PendingRequests& requests, size_t first_server) {
  const uint64_t start_ns = Now_ns();
  const absl::StatusOr<client::Draft> draft = requests.Open(RandomNumber(), start_ns, kOpenWithin_ns);
  if (!draft.ok()) return draft.status();
  std::string last = "no answer";
  for (size_t turn = first_server; Now_ns() < start_ns + kOpenWithin_ns; ++turn) {
    client.socket.SendOne(AsBytes(draft->datagram), servers_[turn % servers_.size()]);
    ++counters_.opens;
    const uint64_t until_ns = Now_ns() + kOpenAgainAfter_ns;
    while (requests.session() == 0 && Now_ns() < until_ns) {
      const int fd = client.socket.fd();
      bool readable = false;
      bench::WaitReadable({&fd, 1}, static_cast<int64_t>(until_ns), {&readable, 1});
      client.socket.Receive(receive_batch_);
      for (size_t i = 0; i < receive_batch_.size(); ++i) {
        std::optional<wire::HkvAnswer> answer = wire::ParseHkvAnswer(AsText(receive_batch_.Bytes(i)));
        if (!answer.has_value() || answer->seq != draft->request.seq) continue;
        last = std::string(wire::Name(answer->status));
        // Only a session ends the request: a server that does not lead now may lead the next time.
        if (answer->status == wire::HkvStatus::kOk) requests.Answer(*std::move(answer), Now_ns());
      }
    }
    if (requests.session() != 0) return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("no session within 10 s: ", last));
}

void HkvLoad::Run(const std::atomic<bool>& stop, const std::function<void(const LoadTick&)>& on_tick) {
  bench::AskForExactTimers();
  const uint64_t start_ns = Now_ns() + 5'000'000;
  end_ns_ = start_ns + options_.run_max_ns;
  std::vector<int> fds;
  for (size_t i = 0; i < clients_.size(); ++i) {
    clients_[i].next_send_ns = start_ns + i * options_.interval_ns / clients_.size();
    fds.push_back(clients_[i].socket.fd());
  }
  std::array<bool, kClientsMax> readable;
  uint64_t quiet_until_ns = UINT64_MAX;
  uint64_t tick_ns = on_tick ? start_ns + kTickEvery_ns : UINT64_MAX;
  while (Now_ns() < quiet_until_ns) {
    uint64_t now_ns = Now_ns();
    SendCopiesDue(now_ns);
    GiveUp(now_ns);
    const bool sending = !stop && now_ns < end_ns_;
    if (sending) SendDue(now_ns);
    if (now_ns >= tick_ns) {
      on_tick(Tick(now_ns));
      tick_ns = now_ns + kTickEvery_ns;
    }
    uint64_t due_ns = NextDue_ns(sending);
    if (!sending && due_ns == UINT64_MAX && quiet_until_ns == UINT64_MAX) quiet_until_ns = now_ns + kLinger_ns;
    // A tenth of a second at most: `stop` wakes no thread.
    due_ns = std::min({due_ns, quiet_until_ns, now_ns + 100'000'000});
    bench::WaitReadable(fds, static_cast<int64_t>(due_ns), readable);
    now_ns = Now_ns();
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (readable[i]) Receive(i, now_ns);
    }
  }
  if (on_tick) on_tick(Tick(Now_ns()));
}

uint64_t HkvLoad::NextDue_ns(bool sending) const {
  uint64_t due_ns = copies_due_.empty() ? UINT64_MAX : copies_due_.begin()->first;
  for (const Client& client : clients_) {
    if (sending) due_ns = std::min(due_ns, client.next_send_ns);
    for (const client::PendingRequests& requests : client.sessions)
      due_ns = std::min(due_ns, requests.next_deadline_ns());
  }
  return due_ns;
}

LoadTick HkvLoad::Tick(uint64_t now_ns) {
  uint64_t longest_ns = std::exchange(longest_ended_ns_, 0);
  for (const Client& client : clients_) {
    for (const client::PendingRequests& requests : client.sessions) {
      // All have the same time-out, so the first deadline is that of the one that waits longest.
      if (requests.outstanding() == 0) continue;
      const uint64_t sent_ns = requests.next_deadline_ns() - options_.timeout_ns;
      longest_ns = std::max(longest_ns, now_ns > sent_ns ? now_ns - sent_ns : 0);
    }
  }
  uint64_t failed = counters_.timed_out;
  for (const auto& [status, count] : counters_.errors) failed += count;
  return {.at_ns = now_ns, .sent = counters_.sent, .ok = counters_.ok, .failed = failed, .longest_ns = longest_ns};
}

void HkvLoad::SendDue(uint64_t now_ns) {
  for (size_t i = 0; i < clients_.size(); ++i) {
    Client& client = clients_[i];
    for (; client.next_send_ns <= now_ns; client.next_send_ns += options_.interval_ns) Issue(i, client.next_send_ns);
  }
}

void HkvLoad::Issue(size_t number, uint64_t intended_ns) {
  Client& client = clients_[number];
  const size_t session = client.next_session++ % client.sessions.size();
  client::PendingRequests& requests = client.sessions[session];
  Record record = client.mix.Next();
  record.key = rooms_.Take(record.kind, record.key);
  record.intended_ns = intended_ns;
  record.sent_ns = Now_ns();
  counters_.send_lag_max_ns = std::max(counters_.send_lag_max_ns, record.sent_ns - intended_ns);
  absl::StatusOr<client::Draft> draft =
      IsWrite(record.kind) ? requests.Write({OperationOf(record)}, record.sent_ns, options_.timeout_ns)
                           : requests.Get(KeyName(record.kind, record.key), record.sent_ns, options_.timeout_ns);
  // There is room for everything that the time-out lets be outstanding.
  if (!draft.ok()) {
    rooms_.GiveBack(record.kind, record.key);
    ++counters_.send_failed;
    return;
  }
  ++counters_.sent;
  const size_t place = records_.size();
  records_.push_back(record);
  client.issued.emplace(std::pair(draft->request.client_id, draft->request.seq),
                        Issued{.session = session, .record = place});
  if (!options_.application) {
    Send(client, 0, draft->datagram);
    return;
  }
  Kept kept{.client = number,
            .session = session,
            .request = std::move(draft->request),
            .attempts = {},
            .deadline_ns = record.sent_ns + options_.timeout_ns};
  Send(client, client.hedging.First(record.sent_ns, kept.attempts), draft->datagram);
  if (kept.attempts.next_ns != UINT64_MAX) copies_due_.emplace(kept.attempts.next_ns, place);
  kept_.emplace(place, std::move(kept));
}

void HkvLoad::Send(Client& client, size_t server, const std::string& datagram) {
  if (!client.socket.SendOne(AsBytes(datagram), servers_[server])) ++counters_.send_failed;
}

// The same request with what is left of its timeout: the deadline is absolute.
void HkvLoad::SendCopy(Kept& kept, size_t record, size_t server, uint64_t now_ns) {
  if (now_ns + 1000 >= kept.deadline_ns) return;
  kept.request.timeout_us = static_cast<uint32_t>((kept.deadline_ns - now_ns) / 1000);
  Send(clients_[kept.client], server, wire::Encode(kept.request));
  records_[record].attempts = kept.attempts.total();
}

void HkvLoad::SendCopiesDue(uint64_t now_ns) {
  while (!copies_due_.empty() && copies_due_.begin()->first <= now_ns) {
    const size_t record = copies_due_.begin()->second;
    copies_due_.erase(copies_due_.begin());
    Kept& kept = kept_.at(record);
    const size_t server = clients_[kept.client].hedging.Next(kept.attempts);
    if (kept.attempts.next_ns != UINT64_MAX) copies_due_.emplace(kept.attempts.next_ns, record);
    ++counters_.hedges;
    SendCopy(kept, record, server, now_ns);
  }
}

void HkvLoad::GiveUp(uint64_t now_ns) {
  for (Client& client : clients_) {
    for (size_t session = 0; session < client.sessions.size(); ++session) {
      while (const std::optional<client::Outcome> outcome = client.sessions[session].GiveUp(now_ns)) {
        End(client.issued.at({outcome->client_id, outcome->seq}).record, *outcome);
      }
    }
  }
}

// One batch for each turn and socket: a flood of answers may not hold up the sends.
void HkvLoad::Receive(size_t client, uint64_t now_ns) {
  clients_[client].socket.Receive(receive_batch_);
  for (size_t i = 0; i < receive_batch_.size(); ++i) {
    OnDatagram(client, receive_batch_.Bytes(i), receive_batch_.Peer(i), now_ns);
  }
}

void HkvLoad::OnDatagram(size_t number, std::span<const uint8_t> bytes, const bench::Address& peer, uint64_t now_ns) {
  Client& client = clients_[number];
  size_t server = 0;
  while (server < servers_.size() && !servers_[server].SameAs(peer)) ++server;
  std::optional<wire::HkvAnswer> answer = wire::ParseHkvAnswer(AsText(bytes));
  if (server == servers_.size() || !answer.has_value()) {
    ++counters_.stray;
    return;
  }
  client.hedging.Heard(server, now_ns);
  const auto issued = client.issued.find({answer->client_id, answer->seq});
  if (issued == client.issued.end()) {
    // An OPEN that was sent again is answered again.
    if (answer->kind != wire::HkvKind::kOpen) ++counters_.stray;
    return;
  }
  OnAnswer(client, issued->second, server, *std::move(answer), now_ns);
}

void HkvLoad::OnAnswer(Client& client, const Issued& issued, size_t server, wire::HkvAnswer answer, uint64_t now_ns) {
  const size_t place = issued.record;
  const Record& record = records_[place];
  if (record.ending == Ending::kTimedOut) {
    ++counters_.late;
    return;
  }
  if (record.ending != Ending::kPending) {
    ++(record.attempts > 1 ? counters_.losers : counters_.duplicates);
    return;
  }
  if (options_.application && Refused(place, server, answer, now_ns)) return;
  std::optional<client::Outcome> outcome = client.sessions[issued.session].Answer(std::move(answer), now_ns);
  if (!outcome.has_value()) {
    ++counters_.stray;  // another kind than was asked
    return;
  }
  if (options_.application) client.hedging.Answered(server, kept_.at(place).attempts);
  End(place, *outcome);
}

bool HkvLoad::Refused(size_t place, size_t server, const wire::HkvAnswer& answer, uint64_t now_ns) {
  const bool not_leader = answer.status == wire::HkvStatus::kNotLeader;
  if (!not_leader && answer.status != wire::HkvStatus::kOverloaded) return false;
  Kept& kept = kept_.at(place);
  AppHedging& hedging = clients_[kept.client].hedging;
  ++kept.attempts.refused;
  if (not_leader) {
    std::optional<size_t> hint;
    if (answer.hint > 0) hint = answer.hint - 1;
    const std::optional<size_t> next = hedging.NotLeader(server, hint, kept.attempts);
    if (next.has_value()) {
      ++counters_.followed;
      SendCopy(kept, place, *next, now_ns);
    }
  }
  if (kept.attempts.stranded()) {
    hedging.Again(now_ns, kept.attempts);
    copies_due_.emplace(kept.attempts.next_ns, place);
  }
  return true;
}

void HkvLoad::End(size_t place, const client::Outcome& outcome) {
  Record& record = records_[place];
  record.ended_ns = outcome.ended_ns;
  longest_ended_ns_ = std::max(longest_ended_ns_, outcome.ended_ns - record.intended_ns);
  if (!outcome.answer.has_value()) {
    record.ending = Ending::kTimedOut;
    ++counters_.timed_out;
  } else {
    const wire::HkvAnswer& answer = *outcome.answer;
    const bool not_found = answer.status == wire::HkvStatus::kNotFound && record.kind == Kind::kGet;
    const std::optional<uint64_t> value = ReportedValue(record, answer);
    if ((answer.status == wire::HkvStatus::kOk || not_found) && value.has_value()) {
      record.ending = Ending::kOk;
      record.value = *value;
      ++counters_.ok;
    } else {
      record.ending = Ending::kError;
      ++counters_.errors[std::string(wire::Name(answer.status))];
    }
  }
  rooms_.Ended(record);
  Forget(place);
}

void HkvLoad::Forget(size_t place) {
  const auto kept = kept_.find(place);
  if (kept == kept_.end()) return;
  copies_due_.erase({kept->second.attempts.next_ns, place});
  kept_.erase(kept);
}

}  // namespace hedgerow::chaos
