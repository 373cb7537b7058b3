// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/memcached_front_end.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cluster/node/front_end/front_end.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

using memcached::Outcome;
using memcached::Refusal;
using memcached::Verb;

constexpr size_t kSocketBuffer_bytes = 4 * 1024 * 1024;
constexpr int kBatchesPerTurn = 4;
// Sockets that may send within a tenth of a second; 8 MB.
constexpr size_t kClientsMax = 65'536;

// ReplyTo::way[2]: the port, the verb above it, whether anybody waits, and at the top whose it is.
constexpr int kVerbShift = 16;
constexpr uint64_t kNoReply = uint64_t{1} << 32;
constexpr uint64_t kOfMemcached = uint64_t{1} << 62;

int64_t UnixNow_s() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

kv::ReplyTo ReplyToClient(const Datagram& datagram, const memcached::Request& request, size_t room_bytes) {
  kv::ReplyTo reply_to{.client = request.keys.size(), .request = request.id, .way = WayBack(datagram, room_bytes)};
  reply_to.way[2] |= static_cast<uint64_t>(request.verb) << kVerbShift | kOfMemcached;
  if (request.no_reply) reply_to.way[2] |= kNoReply;
  return reply_to;
}

// Announcements need an address that proxies know, and 0.0.0.0 is none.
NetAddress ServedAddress(const NodeConfig& config) {
  NetAddress served = config.memcached.listen;
  if (served.is_unspecified()) served.bytes = config.own().serve.bytes;
  return served;
}

uint64_t RateOf(const MemcachedConfig& config, size_t members, uint64_t window_ns) {
  const uint64_t most = std::max<uint64_t>(MemcachedRateMax(members, window_ns), 1);
  return config.rate_per_s == 0 ? most : std::min(most, config.rate_per_s);
}

}  // namespace

bool IsMemcacheds(const kv::ReplyTo& reply_to) { return (reply_to.way[2] & kOfMemcached) != 0; }

absl::StatusOr<std::unique_ptr<MemcachedFrontEnd>> MemcachedFrontEnd::Open(const NodeConfig& config,
                                                                           SourceLimits& sources) {
  if (!config.memcached.on()) return nullptr;
  absl::StatusOr<std::unique_ptr<UdpSocket>> socket =
      UdpSocket::Bind(config.memcached.listen, kSocketBuffer_bytes, UdpSocket::kDatagramMax_bytes);
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<MemcachedFrontEnd>(new MemcachedFrontEnd(config, *std::move(socket), sources));
}

MemcachedFrontEnd::MemcachedFrontEnd(const NodeConfig& config, std::unique_ptr<UdpSocket> socket, SourceLimits& sources)
    : config_(config.memcached),
      sources_(sources),
      limits_{.value_max_bytes = config_.value_max_bytes, .once_in_window = config_.once_in_window},
      served_(ServedAddress(config)),
      socket_(std::move(socket)),
      rate_per_s_(RateOf(config_, config.members.size(), kv::MemcachedLimits().window.window_ns)),
      rate_(rate_per_s_, kClientsMax) {}

// Never faster than the file says, which may say less than what the members and the window allow.
void MemcachedFrontEnd::Follow(size_t members, const kv::MemcachedLimits& limits) {
  memory_bytes_ = limits.memory_bytes;
  if (members == 0) return;  // it joins, and knows no member yet
  const uint64_t per_s = RateOf(config_, members, limits.window.window_ns);
  if (per_s == rate_per_s_) return;
  rate_per_s_ = per_s;
  rate_.SetRate(per_s);
}

bool MemcachedFrontEnd::Receive(uint64_t now_ns, const kv::MemcachedState& state, const Taker& take) {
  if (opened_ns_ == 0) opened_ns_ = now_ns;
  bool any = false;
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const std::vector<Datagram>& batch = socket_->Receive(now_ns);
    for (const Datagram& datagram : batch) {
      if (std::optional<kv::Request> request = Take(datagram, now_ns, state)) {
        take(datagram.arrived_ns, std::move(*request));
      }
    }
    any = any || !batch.empty();
    if (batch.size() < UdpSocket::kBatch) break;
  }
  return any;
}

// An error may meet a server that answers errors.
void MemcachedFrontEnd::Refuse(const Datagram& datagram, Refusal refusal, const std::string& answer) {
  ++counters_.refusals[static_cast<size_t>(refusal)];
  if (IsServerPort(datagram.from.port)) return Drop(memcached::Drop::kServerPort);
  const size_t room_bytes = sources_.AnswerRoom_bytes(datagram);
  if (room_bytes != 0 && OnTheWire_bytes(datagram.from, 1, answer.size()) > room_bytes)
    return Drop(memcached::Drop::kTooLong);
  if (!sources_.MaySend(datagram.from, answer.size(), room_bytes)) return Drop(memcached::Drop::kBytes);
  socket_->SendFrom(datagram.to, datagram.from, answer);
}

// A client's own fault, so nothing that another node should be asked for (SERVER_ERROR is).
bool MemcachedFrontEnd::WithinRate(const Datagram& datagram, uint64_t now_ns) {
  memcached::Rate::Client client{};
  std::memcpy(client.data(), datagram.from.bytes.data(), datagram.from.bytes.size());
  client[2] = datagram.from.port;
  const auto id =
      static_cast<uint16_t>(static_cast<uint8_t>(datagram.bytes[0]) << 8 | static_cast<uint8_t>(datagram.bytes[1]));
  switch (rate_.Take(client, now_ns)) {
    case memcached::Rate::Verdict::kTaken: return true;
    case memcached::Rate::Verdict::kTooFast:
      Refuse(datagram, Refusal::kTooFast,
             memcached::AnswerLine(id, "CLIENT_ERROR too many requests from one socket: memcached.rate"));
      return false;
    case memcached::Rate::Verdict::kTooManyClients:
      Refuse(datagram, Refusal::kTooManyClients, memcached::AnswerLine(id, "SERVER_ERROR too many clients"));
      return false;
  }
  return false;
}

std::optional<kv::Request> MemcachedFrontEnd::Take(const Datagram& datagram, uint64_t now_ns,
                                                   const kv::MemcachedState& state) {
  if (!config_.clients.Contains(datagram.from.bytes)) {
    refused_lately_.Note(RefusedLately::Why::kNotListed, datagram.from, now_ns);
    Drop(memcached::Drop::kSource);
    return std::nullopt;
  }
  memcached::Parse parsed = memcached::ParseRequest(datagram.bytes, limits_);
  if (parsed.drop != memcached::Drop::kNone) {
    Drop(parsed.drop);
    return std::nullopt;
  }
  if (!WithinRate(datagram, now_ns)) return std::nullopt;
  if (!parsed.request.has_value()) {
    Refuse(datagram, parsed.refusal, parsed.answer);
    return std::nullopt;
  }
  memcached::Request& asked = *parsed.request;
  ++counters_.requests[static_cast<size_t>(asked.verb)];
  const size_t room_bytes = sources_.AnswerRoom_bytes(datagram);
  const Way way{.local = datagram.to, .client = datagram.from, .id = asked.id, .room_bytes = room_bytes};
  if (asked.verb == Verb::kVersion) {
    SendReply(now_ns, way,
              {.outcome = Outcome::kOther, .text = std::string("VERSION ") + operate::kVersion + "-hedgerow\r\n"});
    return std::nullopt;
  }
  if (asked.verb == Verb::kStats) {
    SendReply(now_ns, way, StatsReply(now_ns, state));
    return std::nullopt;
  }
  kv::Request request;
  request.reply_to = ReplyToClient(datagram, asked, room_bytes);
  request.timeout_ns = kMemcachedTimeout_ns;
  if (!Changes(asked.verb)) {
    request.item_keys = std::move(asked.keys);
    return request;
  }
  request.command.key = memcached::KeyOf(datagram.from.bytes, datagram.from.port, datagram.bytes);
  request.command.item = std::move(asked.operation);
  // Here and once, so that every replica is told the same life, whatever its own wall clock says.
  request.command.item.life_s = memcached::LifeOf_s(asked.exptime, UnixNow_s());
  return request;
}

void MemcachedFrontEnd::Answer(uint64_t now_ns, const kv::Answer& answer) {
  const kv::ReplyTo& to = answer.reply_to;
  const auto verb = static_cast<Verb>(static_cast<uint8_t>(to.way[2] >> kVerbShift));
  memcached::Reply reply;
  switch (answer.kind) {
    case kv::Answer::Kind::kResult: reply = memcached::ResultReply(verb, answer.result); break;
    case kv::Answer::Kind::kItems: reply = memcached::ItemsReply(verb, to.client, answer.items); break;
    case kv::Answer::Kind::kNotLeader:
    case kv::Answer::Kind::kValue: reply = memcached::NoLeaderReply(); break;
  }
  if ((to.way[2] & kNoReply) != 0) {
    ++counters_.answers[static_cast<size_t>(reply.outcome)];
    ++counters_.no_reply;
    return;
  }
  const auto [local, client] = EndsOf(to);
  SendReply(now_ns,
            {.local = local, .client = client, .id = static_cast<uint16_t>(to.request), .room_bytes = RoomOf(to)},
            reply);
}

// Only gets, and stats, have answers so long that they can be refused, and those change nothing.
void MemcachedFrontEnd::SendReply(uint64_t now_ns, const Way& way, const memcached::Reply& reply) {
  std::vector<std::string> datagrams = memcached::Datagrams(way.id, reply.text);
  Outcome outcome = reply.outcome;
  const auto replace = [&](const memcached::Reply& by) {
    datagrams = memcached::Datagrams(way.id, by.text);
    outcome = by.outcome;
  };
  const auto is_too_long = [&] {
    const size_t payload_bytes = reply.text.size() + datagrams.size() * memcached::kFrame_bytes;
    return way.room_bytes != 0 && OnTheWire_bytes(way.client, datagrams.size(), payload_bytes) > way.room_bytes;
  };
  if (is_too_long()) {
    replace(memcached::UnprovenReply());
    if (OnTheWire_bytes(way.client, 1, datagrams.front().size()) > way.room_bytes)
      return Drop(memcached::Drop::kTooLong);
  }
  if (way.room_bytes != 0) {
    for (const std::string& datagram : datagrams) {
      if (sources_.MaySend(way.client, datagram.size(), way.room_bytes)) continue;
      refused_lately_.Note(RefusedLately::Why::kBytes, way.client, now_ns);
      return Drop(memcached::Drop::kBytes);
    }
  }
  if (!paced_.Answer(now_ns, way.local, way.client, datagrams, Sender())) {
    replace(memcached::OverloadedReply());
    socket_->SendFrom(way.local, way.client, datagrams.front());
  }
  ++counters_.answers[static_cast<size_t>(outcome)];
}

void MemcachedFrontEnd::Flush(uint64_t now_ns) {
  if (paced_.next_ns() <= now_ns) paced_.SendDue(now_ns, Sender());
  socket_->Flush();
}

PacedAnswers::Send MemcachedFrontEnd::Sender() {
  return [this](const NetAddress& from, const NetAddress& to, std::string datagram) {
    socket_->SendFrom(from, to, std::move(datagram));
  };
}

memcached::Reply MemcachedFrontEnd::StatsReply(uint64_t now_ns, const kv::MemcachedState& state) const {
  uint64_t changes = 0;
  for (size_t verb = 0; verb <= static_cast<size_t>(Verb::kPrepend); ++verb) changes += counters_.requests[verb];
  const uint64_t gets =
      counters_.requests[static_cast<size_t>(Verb::kGet)] + counters_.requests[static_cast<size_t>(Verb::kGets)];
  memcached::Reply reply{.outcome = Outcome::kOther};
  const auto line = [&reply](const char* name, const std::string& value) {
    reply.text += std::string("STAT ") + name + " " + value + "\r\n";
  };
  line("pid", std::to_string(getpid()));
  line("uptime", std::to_string((now_ns - opened_ns_) / 1'000'000'000));
  line("time", std::to_string(UnixNow_s()));
  line("version", std::string(operate::kVersion) + "-hedgerow");
  line("curr_items", std::to_string(state.items()));
  line("bytes", std::to_string(state.item_bytes()));
  line("limit_maxbytes", std::to_string(memory_bytes_));
  line("cmd_get", std::to_string(gets));
  line("cmd_set", std::to_string(changes));
  reply.text += "END\r\n";
  return reply;
}

std::string MemcachedFrontEnd::Note() const {
  if (config_.rate_per_s <= rate_per_s_) return {};
  return absl::StrCat("memcached.rate: the file says ", config_.rate_per_s,
                      " requests a second, and the members and memcached.window allow ", rate_per_s_,
                      " from one socket: that is what holds");
}

v1::Memcached MemcachedFrontEnd::StatusOf(const kv::MemcachedState& state) const {
  v1::Memcached status;
  status.set_listen(config_.listen.ToString());
  status.set_rate_per_s(rate_per_s_);
  status.set_items(state.items());
  status.set_item_bytes(state.item_bytes());
  status.set_window_requests(state.seen());
  status.set_clients(rate_.clients());
  return status;
}

}  // namespace hedgerow::node
