// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer_body.h"

#include <algorithm>
#include <string>

#include "cluster/raft/log.h"

namespace hedgerow::wire {
namespace {

// The core counts what its appends take (raft::Options::append_max_bytes).
static_assert(kAppendEntryFixed_bytes == raft::kEntryHeader_bytes);

constexpr size_t kForwardFixed_bytes = 29;
constexpr size_t kForwardAnswerFixed_bytes = 27;
constexpr size_t kTraits_bytes = 8;
constexpr size_t kStarted_bytes = 24;

// A flag that a kernel program reads or writes takes a word.
void PutFlag(ByteWriter& writer, bool value) { writer.Put(static_cast<uint32_t>(value)); }

bool GetFlag(ByteReader& reader) {
  const auto value = reader.Get<uint32_t>();
  if (value > 1) reader.Fail();
  return value == 1;
}

void PutReserved(ByteWriter& writer) { writer.Put(uint32_t{0}); }

// Like every field that is not used: anything but 0 is no message of this version.
void GetReserved(ByteReader& reader) {
  if (reader.Get<uint32_t>() != 0) reader.Fail();
}

constexpr uint8_t kTraitsFormat = 1;
constexpr size_t kExtensionFixed_bytes = 2 * sizeof(uint16_t) + sizeof(uint64_t) + 1 + 2 * sizeof(uint32_t);

// Behind the features stands what their length says, so that a later program can say more to this one. A node
// that says nothing of its version (LOST, or asking under which id it comes back) says nothing there.
uint16_t Extension_bytes(const PeerTraits& traits) {
  if (traits.version_max == 0) return 0;
  return static_cast<uint16_t>(kExtensionFixed_bytes + traits.build.size());
}

void PutTraits(ByteWriter& writer, const PeerTraits& traits) {
  writer.Put(kTraitsFormat);
  writer.Put(static_cast<uint8_t>(traits.durability));
  writer.Put(Extension_bytes(traits));
  writer.Put(traits.features);
  if (traits.version_max == 0) return;
  writer.Put(traits.version_min);
  writer.Put(traits.version_max);
  writer.Put(traits.log_uuid);
  writer.PutText<uint8_t>(traits.build);
  writer.Put(traits.sealing_key);
  writer.Put(traits.other_key);
}

void GetExtension(std::string_view bytes, PeerTraits& traits, ByteReader& whole) {
  ByteReader reader(bytes);
  traits.version_min = reader.Get<uint16_t>();
  traits.version_max = reader.Get<uint16_t>();
  traits.log_uuid = reader.Get<uint64_t>();
  traits.build = reader.GetText<uint8_t>(kBuildMax_bytes);
  traits.sealing_key = reader.Get<uint32_t>();
  traits.other_key = reader.Get<uint32_t>();
  if (!reader.ok() || traits.version_min == 0 || traits.version_min > traits.version_max) whole.Fail();
}

PeerTraits GetTraits(ByteReader& reader) {
  PeerTraits traits;
  if (reader.Get<uint8_t>() != kTraitsFormat) reader.Fail();
  const auto durability = reader.Get<uint8_t>();
  if (durability > static_cast<uint8_t>(PeerTraits::Durability::kMemory)) reader.Fail();
  traits.durability = static_cast<PeerTraits::Durability>(durability);
  const auto extension_bytes = reader.Get<uint16_t>();
  traits.features = reader.Get<uint32_t>();
  if (extension_bytes != 0) GetExtension(reader.GetBytes(extension_bytes), traits, reader);
  return traits;
}

// The term of all entries; 0: there are none, or of several terms.
raft::Term BatchTerm(const raft::AppendRequest& body) {
  const auto as_first = [&body](const raft::Entry& entry) { return entry.term == body.entries.front().term; };
  const bool one_term = !body.entries.empty() && std::all_of(body.entries.begin(), body.entries.end(), as_first);
  return one_term ? body.entries.front().term : raft::Term();
}

uint64_t GetNumber(ByteReader& reader) { return reader.Get<uint64_t>(); }
raft::Term GetTerm(ByteReader& reader) { return raft::Term(GetNumber(reader)); }
raft::LogIndex GetIndex(ByteReader& reader) { return raft::LogIndex(GetNumber(reader)); }

// What is not said takes no room.
size_t Size_bytes(const Started& started) { return started.starts == 0 ? 0 : kStarted_bytes; }

void PutStarted(ByteWriter& writer, const Started& started) {
  if (started.starts == 0) return;
  writer.Put(started.starts);
  writer.Put(started.term.value());
  writer.Put(started.last.value());
}

Started GetStarted(ByteReader& reader) {
  if (reader.done()) return {};
  Started started{.starts = GetNumber(reader), .term = GetTerm(reader), .last = GetIndex(reader)};
  if (started.starts == 0) reader.Fail();
  return started;
}

void PutReadId(ByteWriter& writer, const raft::ReadId& id) {
  writer.Put(id.incarnation);
  writer.Put(id.number);
}

// Braces evaluate from left to right, so the fields below are read in the order of the wire.
raft::ReadId GetReadId(ByteReader& reader) { return {.incarnation = GetNumber(reader), .number = GetNumber(reader)}; }

raft::Entry GetEntry(ByteReader& reader) {
  raft::Entry entry{.term = GetTerm(reader), .index = GetIndex(reader)};
  const auto kind = reader.Get<uint8_t>();
  if (kind > static_cast<uint8_t>(raft::EntryKind::kConfiguration)) reader.Fail();
  entry.kind = static_cast<raft::EntryKind>(kind);
  const std::string_view payload = reader.GetText<uint32_t>(kPeerMax_bytes);
  if (!payload.empty()) entry.payload = raft::Payload(payload);
  return entry;
}

raft::AppendRequest GetAppend(ByteReader& reader) {
  raft::AppendRequest body{.prev_index = GetIndex(reader), .prev_term = GetTerm(reader), .commit = GetIndex(reader)};
  const raft::Term batch_term = GetTerm(reader);
  const size_t count = reader.Get<uint32_t>();
  // A process acknowledges each append: the hint is for kernel parts.
  if ((reader.Get<uint32_t>() & ~HR_PEER_APPEND_MORE) != 0) reader.Fail();
  // No more memory than the bytes that are there can ask for.
  if (count * kAppendEntryFixed_bytes > reader.left_bytes()) {
    reader.Fail();
    return body;
  }
  body.entries.reserve(count);
  for (size_t i = 0; i < count && reader.ok(); ++i) body.entries.push_back(GetEntry(reader));
  // A reader that believes the batch term does not look at the entries.
  if (batch_term != BatchTerm(body)) reader.Fail();
  return body;
}

raft::VoteRequest GetVoteRequest(ByteReader& reader) {
  raft::VoteRequest body{.asked_term = GetTerm(reader),
                         .last_index = GetIndex(reader),
                         .last_term = GetTerm(reader),
                         .transfer_term = GetTerm(reader),
                         .pre_vote = GetFlag(reader)};
  GetReserved(reader);
  return body;
}

raft::AppendReply GetAppendReply(ByteReader& reader) {
  raft::AppendReply body{
      .index = GetIndex(reader), .conflict_term = GetTerm(reader), .conflict_index = GetIndex(reader)};
  body.loop_seq = GetNumber(reader);
  body.accepted = GetFlag(reader);
  GetReserved(reader);
  return body;
}

// Successors stand before the first 0; what follows it is 0. A stalled leader names none.
Resign GetResign(ByteReader& reader) {
  Resign body{.incarnation = GetNumber(reader), .leader = raft::NodeId(reader.Get<uint32_t>())};
  const auto stalled = reader.Get<uint32_t>();
  if (stalled > 1) reader.Fail();
  body.stalled = stalled != 0;
  bool ended = body.stalled;
  for (size_t i = 0; i < HR_PEER_SUCCESSORS; ++i) {
    const raft::NodeId successor(reader.Get<uint32_t>());
    if (ended && successor.IsSet()) reader.Fail();
    if (!successor.IsSet()) ended = true;
    if (!ended) body.successors.push_back(successor);
  }
  return body;
}

Forward GetForward(ByteReader& reader) {
  Forward body{.tag = GetNumber(reader), .age_ns = GetNumber(reader), .timeout_ns = GetNumber(reader)};
  body.hops = reader.Get<uint8_t>();
  body.command = reader.GetText<uint32_t>(kPeerMax_bytes);
  return body;
}

ForwardAnswer GetForwardAnswer(ByteReader& reader) {
  ForwardAnswer body{.tag = GetNumber(reader)};
  body.kind = reader.GetBool() ? ForwardAnswer::Kind::kNotLeader : ForwardAnswer::Kind::kResult;
  const auto code = reader.Get<uint8_t>();
  body.result.code = static_cast<kv::ResultCode>(code);
  body.result.session = GetNumber(reader);
  body.result.token = GetNumber(reader);
  const auto count = reader.Get<uint8_t>();
  const bool is_result = body.kind == ForwardAnswer::Kind::kResult;
  if (code > static_cast<uint8_t>(kv::kResultCodeLast) || count > kv::kOperationsMax ||
      (!is_result && (code != 0 || body.result.session != 0 || body.result.token != 0 || count != 0))) {
    reader.Fail();
    return body;
  }
  body.result.values.reserve(count);
  for (uint8_t i = 0; i < count && reader.ok(); ++i) {
    body.result.values.emplace_back(reader.GetText<uint32_t>(kPeerMax_bytes));
  }
  return body;
}

Piece GetPiece(ByteReader& reader) {
  Piece body{.message = GetNumber(reader), .number = reader.Get<uint16_t>(), .count = reader.Get<uint16_t>()};
  body.bytes = reader.GetText<uint32_t>(kPeerDatagramMax_bytes);
  if (body.count < 2 || body.count > HR_PEER_PIECES_MAX || body.number >= body.count || body.bytes.empty())
    reader.Fail();
  return body;
}

}  // namespace

size_t BodySize_bytes(const Hello& body) {
  return sizeof(body.nonce) + kTraits_bytes + Extension_bytes(body.traits) + Size_bytes(body.started);
}

size_t BodySize_bytes(const HelloAck& body) {
  return sizeof(body.nonce) + kTraits_bytes + Extension_bytes(body.traits) + Size_bytes(body.started);
}

size_t BodySize_bytes(const raft::AppendRequest& body) {
  size_t size = kAppendFixed_bytes - kPeerHeader_bytes + body.entries.size() * kAppendEntryFixed_bytes;
  for (const raft::Entry& entry : body.entries) size += entry.payload.size_bytes();
  return size;
}

size_t BodySize_bytes(const Forward& body) { return kForwardFixed_bytes + body.command.size(); }

size_t BodySize_bytes(const ForwardAnswer& body) {
  size_t size = kForwardAnswerFixed_bytes;
  if (body.kind == ForwardAnswer::Kind::kNotLeader) return size;
  if (body.result.values.size() > kv::kOperationsMax) return kNoSize;
  for (const std::string& value : body.result.values) size += sizeof(uint32_t) + value.size();
  return size;
}

size_t BodySize_bytes(const Piece& body) { return kPieceFixed_bytes + body.bytes.size(); }

void PutBody(ByteWriter& writer, const Hello& body) {
  writer.Put(body.nonce);
  PutTraits(writer, body.traits);
  PutStarted(writer, body.started);
}

void PutBody(ByteWriter& writer, const HelloAck& body) {
  writer.Put(body.nonce);
  PutTraits(writer, body.traits);
  PutStarted(writer, body.started);
}

void PutBody(ByteWriter& writer, const raft::VoteRequest& body) {
  writer.Put(body.asked_term.value());
  writer.Put(body.last_index.value());
  writer.Put(body.last_term.value());
  writer.Put(body.transfer_term.value());
  PutFlag(writer, body.pre_vote);
  PutReserved(writer);
}

void PutBody(ByteWriter& writer, const raft::VoteReply& body) {
  writer.Put(body.asked_term.value());
  PutFlag(writer, body.pre_vote);
  PutFlag(writer, body.granted);
}

void PutBody(ByteWriter& writer, const raft::AppendRequest& body) {
  writer.Put(body.prev_index.value());
  writer.Put(body.prev_term.value());
  writer.Put(body.commit.value());
  writer.Put(BatchTerm(body).value());
  writer.Put(static_cast<uint32_t>(body.entries.size()));
  PutReserved(writer);
  for (const raft::Entry& entry : body.entries) {
    writer.Put(entry.term.value());
    writer.Put(entry.index.value());
    writer.Put(static_cast<uint8_t>(entry.kind));
    writer.PutText<uint32_t>(entry.payload.view());
  }
}

void PutBody(ByteWriter& writer, const raft::AppendReply& body) {
  writer.Put(body.index.value());
  writer.Put(body.conflict_term.value());
  writer.Put(body.conflict_index.value());
  writer.Put(body.loop_seq);
  PutFlag(writer, body.accepted);
  PutReserved(writer);
}

void PutBody(ByteWriter& writer, const raft::Heartbeat& body) {
  writer.Put(body.round);
  writer.Put(body.commit.value());
  writer.Put(body.election_timeout_ns);
}

void PutBody(ByteWriter& writer, const raft::HeartbeatReply& body) {
  writer.Put(body.round);
  writer.Put(body.matched.value());
  writer.Put(body.loop_seq);
}

void PutBody(ByteWriter& writer, const raft::ReadIndexRequest& body) { PutReadId(writer, body.id); }

void PutBody(ByteWriter& writer, const raft::ReadIndexReply& body) {
  PutReadId(writer, body.id);
  writer.Put(body.index.value());
}

void PutBody(ByteWriter&, const raft::TimeoutNow&) {}

void PutBody(ByteWriter& writer, const raft::LastEntry& body) {
  PutReadId(writer, body.id);
  writer.Put(body.last.index.value());
  writer.Put(body.last.term.value());
}

void PutBody(ByteWriter& writer, const Resign& body) {
  writer.Put(body.incarnation);
  writer.Put(static_cast<uint32_t>(body.leader.value()));
  writer.Put(uint32_t{body.stalled});
  for (size_t i = 0; i < HR_PEER_SUCCESSORS; ++i) {
    writer.Put(i < body.successors.size() ? static_cast<uint32_t>(body.successors[i].value()) : uint32_t{0});
  }
}

void PutBody(ByteWriter& writer, const Forward& body) {
  writer.Put(body.tag);
  writer.Put(body.age_ns);
  writer.Put(body.timeout_ns);
  writer.Put(body.hops);
  writer.PutText<uint32_t>(body.command);
}

void PutBody(ByteWriter& writer, const ForwardAnswer& body) {
  const bool is_result = body.kind == ForwardAnswer::Kind::kResult;
  writer.Put(body.tag);
  writer.Put(static_cast<uint8_t>(body.kind));
  writer.Put(is_result ? static_cast<uint8_t>(body.result.code) : uint8_t{0});
  writer.Put(is_result ? body.result.session : uint64_t{0});
  writer.Put(is_result ? body.result.token : uint64_t{0});
  writer.Put(is_result ? static_cast<uint8_t>(body.result.values.size()) : uint8_t{0});
  if (!is_result) return;
  for (const std::string& value : body.result.values) writer.PutText<uint32_t>(value);
}

void PutBody(ByteWriter& writer, const Piece& body) {
  writer.Put(body.message);
  writer.Put(body.number);
  writer.Put(body.count);
  writer.PutText<uint32_t>(body.bytes);
}

PeerBody GetBody(ByteReader& reader, hr_peer_kind kind) {
  switch (kind) {
    case HR_PEER_HELLO:
      return Hello{.nonce = GetNumber(reader), .traits = GetTraits(reader), .started = GetStarted(reader)};
    case HR_PEER_HELLO_ACK:
      return HelloAck{.nonce = GetNumber(reader), .traits = GetTraits(reader), .started = GetStarted(reader)};
    case HR_PEER_VOTE_REQUEST: return GetVoteRequest(reader);
    case HR_PEER_VOTE_REPLY:
      return raft::VoteReply{.asked_term = GetTerm(reader), .pre_vote = GetFlag(reader), .granted = GetFlag(reader)};
    case HR_PEER_APPEND: return GetAppend(reader);
    case HR_PEER_APPEND_REPLY: return GetAppendReply(reader);
    case HR_PEER_HEARTBEAT:
      return raft::Heartbeat{
          .round = GetNumber(reader), .commit = GetIndex(reader), .election_timeout_ns = GetNumber(reader)};
    case HR_PEER_HEARTBEAT_REPLY:
      return raft::HeartbeatReply{
          .round = GetNumber(reader), .matched = GetIndex(reader), .loop_seq = GetNumber(reader)};
    case HR_PEER_READ_INDEX: return raft::ReadIndexRequest{.id = GetReadId(reader)};
    case HR_PEER_READ_INDEX_REPLY: return raft::ReadIndexReply{.id = GetReadId(reader), .index = GetIndex(reader)};
    case HR_PEER_TIMEOUT_NOW: return raft::TimeoutNow{};
    case HR_PEER_FORWARD: return GetForward(reader);
    case HR_PEER_FORWARD_ANSWER: return GetForwardAnswer(reader);
    case HR_PEER_RESIGN: return GetResign(reader);
    case HR_PEER_PIECE: return GetPiece(reader);
    case HR_PEER_LAST_ENTRY:
      return raft::LastEntry{.id = GetReadId(reader), .last = {.index = GetIndex(reader), .term = GetTerm(reader)}};
    case HR_PEER_KINDS: break;
  }
  reader.Fail();
  return {};
}

}  // namespace hedgerow::wire
