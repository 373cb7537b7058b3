// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/front_end.h"

#include "operate/clock.h"

#include <cstring>
#include <string>
#include <utility>

namespace hedgerow::node {
namespace {

// ReplyTo::way: the client's address in the first two words, the local one that it asked in the last two. way[2]: the
// port, the request's kind above it, then the key that has proved it, and at the top whether it is a node's (peers.cc).
constexpr int kKindShift = 16;
constexpr int kProvedByShift = 24;
constexpr int kRoomShift = 40;
constexpr uint64_t kRoomMask = (uint64_t{1} << 18) - 1;
static_assert(kAmplificationMax * (65'535 + 48) <= kRoomMask);

kv::ReplyTo ReplyToClient(const Datagram& datagram, const wire::HkvRequest& request, size_t room_bytes,
                          ClientAccess::KeyNumber proved_by) {
  kv::ReplyTo reply_to{.client = request.client_id, .request = request.seq, .way = WayBack(datagram, room_bytes)};
  reply_to.way[2] |= static_cast<uint64_t>(request.kind) << kKindShift | uint64_t{proved_by} << kProvedByShift;
  return reply_to;
}

ClientAccess::KeyNumber ProvedBy(const kv::ReplyTo& reply_to) {
  return static_cast<ClientAccess::KeyNumber>(reply_to.way[2] >> kProvedByShift);
}

}  // namespace

std::array<uint64_t, 5> WayBack(const Datagram& datagram, size_t room_bytes) {
  std::array<uint64_t, 5> way{};
  std::memcpy(&way[0], datagram.from.bytes.data(), datagram.from.bytes.size());
  std::memcpy(&way[3], datagram.to.bytes.data(), datagram.to.bytes.size());
  way[2] = datagram.from.port | static_cast<uint64_t>(room_bytes) << kRoomShift;
  return way;
}

size_t RoomOf(const kv::ReplyTo& reply_to) { return reply_to.way[2] >> kRoomShift & kRoomMask; }

std::pair<NetAddress, NetAddress> EndsOf(const kv::ReplyTo& reply_to) {
  NetAddress local;
  NetAddress client;
  std::memcpy(client.bytes.data(), &reply_to.way[0], client.bytes.size());
  std::memcpy(local.bytes.data(), &reply_to.way[3], local.bytes.size());
  client.port = static_cast<uint16_t>(reply_to.way[2]);
  return {local, client};
}

std::optional<kv::Request> FrontEnd::Take(const Datagram& datagram, uint64_t now_ns) {
  now_ns_ = now_ns;
  if (!clients_.Contains(datagram.from.bytes)) {
    refused_lately_.Note(RefusedLately::Why::kNotListed, datagram.from, now_ns_);
    ++counters_.drops[static_cast<size_t>(wire::HkvDrop::kSource)];
    return std::nullopt;
  }
  wire::HkvParse parsed = wire::ParseHkvRequest(datagram.bytes);
  const size_t room_bytes = sources_.AnswerRoom_bytes(datagram);
  if (!parsed.request.has_value()) {
    if (!parsed.answer.has_value()) {
      Drop(parsed.drop);
    } else if (IsServerPort(datagram.from.port)) {
      Drop(wire::HkvDrop::kServerPort);
    } else {
      Send(datagram.to, datagram.from, *parsed.answer, room_bytes);
    }
    return std::nullopt;
  }
  ++counters_.requests;
  wire::HkvRequest& asked = *parsed.request;
  ClientAccess::KeyNumber proved_by = 0;
  if (!MayAsk(datagram, asked, room_bytes, proved_by)) return std::nullopt;
  // Once it is known of whom it is: what others send under a client's address uses nothing of its own.
  if (asked.kind == wire::HkvKind::kOpen && !sources_.MayOpen(datagram, access_->ClientOf(proved_by))) {
    refused_lately_.Note(RefusedLately::Why::kOpens, datagram.from, now_ns_);
    Drop(wire::HkvDrop::kOpens);
    return std::nullopt;
  }
  kv::Request request;
  request.reply_to = ReplyToClient(datagram, asked, room_bytes, proved_by);
  request.timeout_ns = wire::Timeout_ns(asked);
  if (wire::RowOf(asked.kind).writes) {
    request.command = wire::CommandOf(std::move(asked));
  } else {
    request.read_key = std::move(asked.key);
  }
  return request;
}

// Answers what is denied, with a tag if the client has proved itself.
bool FrontEnd::MayAsk(const Datagram& datagram, const wire::HkvRequest& asked, size_t room_bytes,
                      ClientAccess::KeyNumber& proved_by) {
  const ClientAccess::Verdict verdict = access_->Judge(datagram.bytes, asked, operate::UnixNow_ms());
  proved_by = verdict.proved_by;
  counters_.authenticated += proved_by != 0;
  if (!verdict.denied) {
    if (proved_by != 0) refused_lately_.NoteAccepted();
    return true;
  }
  refused_lately_.Note(verdict.why, datagram.from, now_ns_);
  ++counters_.denied[static_cast<size_t>(verdict.why)];
  Send(datagram.to, datagram.from,
       {.kind = asked.kind,
        .status = wire::HkvStatus::kDenied,
        .client_id = asked.client_id,
        .seq = asked.seq,
        .denial = verdict.why,
        .denied_key = verdict.key},
       room_bytes, proved_by);
  return false;
}

uint64_t FrontEnd::ClientOf(const kv::ReplyTo& reply_to) const { return access_->ClientOf(ProvedBy(reply_to)); }

void FrontEnd::SetNamedClients(bool anonymous, std::vector<NamedClient> named) {
  const ClientAccess::KeyNumber first = access_->next_number();
  access_before_ = std::exchange(access_, std::make_unique<ClientAccess>(anonymous, std::move(named), first));
}

void FrontEnd::Answer(const kv::Answer& answer, uint32_t pushback) {
  const auto [from, to] = EndsOf(answer.reply_to);
  wire::HkvAnswer reply;
  reply.kind = static_cast<wire::HkvKind>(static_cast<uint8_t>(answer.reply_to.way[2] >> kKindShift));
  reply.client_id = answer.reply_to.client;
  reply.seq = answer.reply_to.request;
  switch (answer.kind) {
    case kv::Answer::Kind::kResult:
      reply.status = wire::StatusOf(answer.result.code);
      reply.session = answer.result.session;
      reply.token = answer.result.token;
      reply.values = answer.result.values;
      break;
    case kv::Answer::Kind::kValue:
      reply.status = answer.value.has_value() ? wire::HkvStatus::kOk : wire::HkvStatus::kNotFound;
      reply.value = answer.value.value_or("");
      break;
    case kv::Answer::Kind::kNotLeader:
      reply.status = wire::HkvStatus::kNotLeader;
      reply.hint = static_cast<uint32_t>(answer.leader_hint.value());
      break;
    case kv::Answer::Kind::kItems:  // the other front end's (memcached_front_end.h)
      break;
  }
  // Another copy of what found a bound reached would find it, too.
  if (reply.status == wire::HkvStatus::kOverloaded) pushback = wire::kHkvNeverHedge;
  if (reply.status != wire::HkvStatus::kNotLeader) reply.pushback = pushback;
  counters_.asked_for_no_hedge += reply.pushback == wire::kHkvNeverHedge;
  counters_.asked_for_later_hedge += reply.pushback != 0 && reply.pushback != wire::kHkvNeverHedge;
  Send(from, to, reply, RoomOf(answer.reply_to), ProvedBy(answer.reply_to));
}

// Only a GET can bring much for little. Its client may ask again with as many bytes as the answer wants, and has sent
// them then. To a client whose key is gone meanwhile, a reload ago, no answer can be made that it would believe.
void FrontEnd::Send(const NetAddress& from, const NetAddress& to, const wire::HkvAnswer& answer, size_t room_bytes,
                    ClientAccess::KeyNumber proved_by) {
  const wire::Key* key = access_->Find(proved_by);
  if (key == nullptr && access_before_ != nullptr) key = access_before_->Find(proved_by);
  if (key == nullptr && proved_by != 0) return Drop(wire::HkvDrop::kKeyGone);
  const auto encoded = [key](const wire::HkvAnswer& what) {
    return key == nullptr ? wire::Encode(what) : wire::SealHkvAnswer(wire::Encode(what, wire::kHkvTag_bytes), *key);
  };
  std::string datagram = encoded(answer);
  wire::HkvStatus status = answer.status;
  const auto is_too_long = [&] { return room_bytes != 0 && OnTheWire_bytes(to, 1, datagram.size()) > room_bytes; };
  if (answer.kind == wire::HkvKind::kGet && is_too_long()) {
    wire::HkvAnswer too_short{.kind = answer.kind, .client_id = answer.client_id, .seq = answer.seq};
    too_short.status = status = wire::HkvStatus::kShort;
    too_short.hint = static_cast<uint32_t>(RequestFor_bytes(to, datagram.size()));
    datagram = encoded(too_short);
  }
  if (is_too_long()) return Drop(wire::HkvDrop::kTooLong);
  if (!sources_.MaySend(to, datagram.size(), room_bytes)) {
    refused_lately_.Note(RefusedLately::Why::kBytes, to, now_ns_);
    return Drop(wire::HkvDrop::kBytes);
  }
  ++counters_.answers[static_cast<size_t>(status)];
  socket_.SendFrom(from, to, std::move(datagram));
}

}  // namespace hedgerow::node
