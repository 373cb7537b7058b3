// SPDX-License-Identifier: Apache-2.0
#include "cluster/memcached/request.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "bpf/abi/siphash_abi.h"

namespace hedgerow::memcached {
namespace {

// By number.
constexpr std::array<std::string_view, kRefusals> kRefusalNames = {
    "none",          "unknown_command", "bad_format", "bad_chunk", "too_large", "several_datagrams", "several_commands",
    "too_many_keys", "not_served",      "no_consent", "binary",    "too_fast",  "too_many_clients"};
constexpr std::array<std::string_view, kDrops> kDropNames = {"none",        "too_short", "an_answer", "source",
                                                             "server_port", "too_long",  "bytes"};

// With which an answer begins.
constexpr std::string_view kAnswerTexts[] = {
    "ERROR",   "CLIENT_ERROR", "SERVER_ERROR", "STORED",  "NOT_STORED", "EXISTS", "NOT_FOUND", "DELETED",
    "TOUCHED", "VALUE",        "END",          "VERSION", "STAT",       "OK",     "RESET",     "BUSY",
    "HD",      "VA",           "EN",           "NF",      "NS",         "EX",     "MN",        "ME"};

constexpr uint8_t kBinaryRequest = 0x80;
constexpr uint8_t kBinaryAnswer = 0x81;
constexpr size_t kBinaryHeader_bytes = 24;
constexpr int64_t kThirtyDays_s = 60 * 60 * 24 * 30;

// Words of a line; several spaces are one.
std::vector<std::string_view> Split(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

template <typename Number>
bool ReadNumber(std::string_view word, Number& into) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), into);
  return error == std::errc() && end == word.data() + word.size();
}

std::string Frame(uint16_t id) {
  const char frame[kFrame_bytes] = {static_cast<char>(id >> 8), static_cast<char>(id), 0, 0, 0, 1, 0, 0};
  return std::string(frame, sizeof(frame));
}

uint16_t NumberAt(std::string_view datagram, size_t offset) {
  return static_cast<uint16_t>(static_cast<uint8_t>(datagram[offset]) << 8 |
                               static_cast<uint8_t>(datagram[offset + 1]));
}

// A status of memcached's binary protocol, "not supported", with a text for clients that print it.
std::string BinaryAnswer(uint16_t id, std::string_view request) {
  constexpr std::string_view kText = "this server speaks the text protocol only";
  std::string header(kBinaryHeader_bytes, '\0');
  header[0] = static_cast<char>(kBinaryAnswer);
  if (request.size() > 1) header[1] = request[1];
  header[7] = static_cast<char>(0x83);
  header[11] = static_cast<char>(kText.size());
  if (request.size() >= 16) header.replace(12, 4, request.substr(12, 4));  // opaque
  return Frame(id) + header + std::string(kText);
}

class Parser {
 public:
  Parser(std::string_view datagram, const Limits& limits) : limits_(limits), body_(datagram.substr(kFrame_bytes)) {
    request_.id = NumberAt(datagram, 0);
  }

  Parse Run(uint16_t datagrams) {
    if (IsAnswer()) return {.drop = Drop::kAnAnswer};
    if (datagrams != 1) return Refuse(Refusal::kSeveralDatagrams, "SERVER_ERROR multi-packet request not supported");
    if (!body_.empty() && static_cast<uint8_t>(body_[0]) == kBinaryRequest)
      return {.refusal = Refusal::kBinary, .answer = BinaryAnswer(request_.id, body_)};
    size_t end = body_.find('\n');
    if (end == std::string_view::npos) return Unknown();
    rest_ = body_.substr(end + 1);
    if (end > 0 && body_[end - 1] == '\r') --end;
    words_ = Split(body_.substr(0, end));
    return words_.empty() ? Unknown() : Command();
  }

 private:
  // Also of the binary protocol and of the meta commands.
  bool IsAnswer() const {
    if (!body_.empty() && static_cast<uint8_t>(body_[0]) == kBinaryAnswer) return true;
    const std::string_view word = body_.substr(0, body_.find_first_of(" \r\n"));
    return std::find(std::begin(kAnswerTexts), std::end(kAnswerTexts), word) != std::end(kAnswerTexts);
  }

  Parse Refuse(Refusal refusal, std::string_view line) const {
    return {.refusal = refusal, .answer = AnswerLine(request_.id, line)};
  }
  Parse Unknown() const { return Refuse(Refusal::kUnknownCommand, "ERROR"); }
  Parse BadFormat() const { return Refuse(Refusal::kBadFormat, "CLIENT_ERROR bad command line format"); }
  Parse Taken() { return {.request = std::move(request_)}; }

  Parse Command() {
    const VerbRow* const row = FindVerb(words_[0]);
    if (row == nullptr) return OtherCommand();
    request_.verb = row->verb;
    if (row->line == LineForm::kNothing) return words_.size() == 1 ? Alone() : Unknown();
    if (row->line == LineForm::kDelay) return Flush();
    return row->line == LineForm::kKeys ? Get() : Change(*row);
  }

  Parse OtherCommand() const {
    if (words_[0] == "gat" || words_[0] == "gats")
      return Refuse(Refusal::kNotServed, "CLIENT_ERROR gat is not served here; get and touch are");
    if (words_[0].size() == 2 && words_[0][0] == 'm')
      return Refuse(Refusal::kNotServed, "CLIENT_ERROR meta commands are not served here; text commands are");
    return Unknown();
  }

  // Two commands in one datagram are two requests, and have one id.
  Parse Alone() {
    if (rest_.empty()) return Taken();
    return Refuse(Refusal::kSeveralCommands, "CLIENT_ERROR one command in a datagram, and nothing behind it");
  }

  bool IsKey(std::string_view word) const { return word.size() <= kv::kKeyMax_bytes; }

  Parse Get() {
    if (words_.size() == 1) return Unknown();
    if (words_.size() - 1 > kKeysMax)
      return Refuse(Refusal::kTooManyKeys, "CLIENT_ERROR at most 100 keys in one request");
    for (size_t i = 1; i < words_.size(); ++i) {
      if (!IsKey(words_[i])) return BadFormat();
      request_.keys.emplace_back(words_[i]);
    }
    return Alone();
  }

  Parse Flush() {
    if (words_.size() > 1 && words_.back() == "noreply") {
      request_.no_reply = true;
      words_.pop_back();
    }
    request_.operation.verb = kv::ItemVerb::kFlush;
    if (words_.size() > 2) return Unknown();
    if (words_.size() == 2 && !ReadNumber(words_[1], request_.exptime))
      return Refuse(Refusal::kBadFormat, "CLIENT_ERROR invalid exptime argument");
    return Alone();
  }

  Parse Change(const VerbRow& row) {
    if (words_.size() > 2 && words_.back() == "noreply") {
      request_.no_reply = true;
      words_.pop_back();
    }
    kv::ItemOperation& operation = request_.operation;
    operation.verb = static_cast<kv::ItemVerb>(request_.verb);
    if (words_.size() < 2) return Unknown();
    if (!IsKey(words_[1])) return BadFormat();
    operation.key = words_[1];
    if (row.needs_consent && !limits_.once_in_window) {
      return Refuse(Refusal::kNoConsent,
                    "CLIENT_ERROR " + std::string(words_[0]) + " is refused here: memcached.once_in_window is off");
    }
    switch (row.line) {
      case LineForm::kKey:
        // Of old a time could follow, and 0 is still taken.
        return words_.size() == 2 || (words_.size() == 3 && words_[2] == "0") ? Alone() : BadFormat();
      case LineForm::kKeyTime:
        if (words_.size() != 3) return Unknown();
        if (!ReadNumber(words_[2], request_.exptime))
          return Refuse(Refusal::kBadFormat, "CLIENT_ERROR invalid exptime argument");
        return Alone();
      case LineForm::kKeyDelta:
        if (words_.size() != 3) return Unknown();
        if (!ReadNumber(words_[2], operation.delta))
          return Refuse(Refusal::kBadFormat, "CLIENT_ERROR invalid numeric delta argument");
        return Alone();
      default: return Store(row.line == LineForm::kStoreUnique);
    }
  }

  Parse Store(bool cas) {
    kv::ItemOperation& operation = request_.operation;
    uint32_t bytes = 0;
    if (words_.size() != (cas ? 6u : 5u)) return Unknown();
    if (!ReadNumber(words_[2], operation.flags) || !ReadNumber(words_[3], request_.exptime) ||
        !ReadNumber(words_[4], bytes) || (cas && !ReadNumber(words_[5], operation.unique)))
      return BadFormat();
    if (bytes > limits_.value_max_bytes && request_.verb == Verb::kSet) {
      // As memcached does: the client has replaced what was there, and must not find it afterwards. What is behind the
      // line is not looked at: it may be cut.
      operation.verb = kv::ItemVerb::kDiscard;
      return Taken();
    }
    if (bytes > limits_.value_max_bytes) return Refuse(Refusal::kTooLarge, "SERVER_ERROR object too large for cache");
    const std::string_view behind = rest_.substr(std::min<size_t>(bytes, rest_.size()));
    if (behind.substr(0, 2) != "\r\n") return Refuse(Refusal::kBadChunk, "CLIENT_ERROR bad data chunk");
    operation.value = rest_.substr(0, bytes);
    rest_ = behind.substr(2);
    return Alone();
  }

  const Limits& limits_;
  std::string_view body_;
  std::string_view rest_;  // behind the line, and behind a storage command's block
  std::vector<std::string_view> words_;
  Request request_;
};

}  // namespace

std::string_view Name(Verb verb) {
  const auto index = static_cast<size_t>(verb);
  if (index >= kVerbs) return "unknown";
  return index == 0 ? "none" : RowOf(verb).name;
}

std::string_view Name(Refusal refusal) {
  const auto index = static_cast<size_t>(refusal);
  return index < kRefusalNames.size() ? kRefusalNames[index] : "unknown";
}

std::string_view Name(Drop drop) {
  const auto index = static_cast<size_t>(drop);
  return index < kDropNames.size() ? kDropNames[index] : "unknown";
}

Parse ParseRequest(std::string_view datagram, const Limits& limits) {
  if (datagram.size() < kFrame_bytes) return {.drop = Drop::kTooShort};
  return Parser(datagram, limits).Run(NumberAt(datagram, 4));
}

std::string AnswerLine(uint16_t id, std::string_view line) {
  std::string datagram = Frame(id);
  datagram.append(line);
  datagram.append("\r\n");
  return datagram;
}

// The same on every node: two copies of one request meet in the log. A collision gives an attacker nothing: it needs
// the same client and id, so the hash's key is no secret.
kv::RequestKey KeyOf(const std::array<uint8_t, 16>& address, uint16_t port, std::string_view datagram) {
  constexpr hr_siphash_key kFingerprint = {.k0 = 0x6865646765726f77, .k1 = 0x6d656d6361636865};
  kv::RequestKey key{.kind = kv::CommandKind::kMemcached};
  std::memcpy(&key.a, address.data(), sizeof(key.a));
  std::memcpy(&key.b, address.data() + sizeof(key.a), sizeof(key.b));
  const std::string_view body = datagram.substr(kFrame_bytes);
  key.c = hr_siphash(&kFingerprint, body.data(), body.size());
  key.d = static_cast<uint64_t>(port) << 16 | NumberAt(datagram, 0);
  return key;
}

int64_t LifeOf_s(int64_t exptime, int64_t unix_now_s) {
  if (exptime < 0) return -1;
  if (exptime <= kThirtyDays_s) return exptime;
  return exptime > unix_now_s ? exptime - unix_now_s : -1;
}

}  // namespace hedgerow::memcached
