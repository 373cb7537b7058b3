// SPDX-License-Identifier: Apache-2.0
//
// The dns workload: A queries (RFC 1035, section 4.1) for the names of a list. An answer must carry the id, QR,
// the same question byte for byte, RCODE 0 and at least one record (or TC); anything else with that id is a
// wrong answer.
#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/load/workload.h"

namespace hedgerow::bench {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr uint64_t kIds = 1 << 16;

// A name on the wire followed by QTYPE A and QCLASS IN.
absl::StatusOr<std::vector<uint8_t>> EncodeQuestion(absl::string_view name) {
  std::vector<uint8_t> question;
  absl::ConsumeSuffix(&name, ".");
  for (absl::string_view label : absl::StrSplit(name, '.')) {
    if (label.empty() || label.size() > 63) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' is no DNS name: a label has 1 to 63 bytes, '", label, "' has ", label.size()));
    }
    question.push_back(static_cast<uint8_t>(label.size()));
    question.insert(question.end(), label.begin(), label.end());
  }
  question.push_back(0);
  if (question.size() > 255) return absl::InvalidArgumentError(absl::StrCat("'", name, "' is longer than 255 bytes"));
  question.insert(question.end(), {0, 1, 0, 1});
  return question;
}

class DnsWorkload final : public Workload {
 public:
  DnsWorkload(std::vector<std::vector<uint8_t>> questions, uint64_t flows)
      : questions_(std::move(questions)), flows_(flows) {}

  size_t Encode(uint64_t seq, std::span<uint8_t, kMaxRequestBytes> out) override {
    const uint64_t id = (seq / flows_) % kIds;
    const uint8_t header[kHeaderBytes] = {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id), 1 /* RD */, 0, 0, 1};
    std::memcpy(out.data(), header, kHeaderBytes);
    const std::vector<uint8_t>& question = Question(seq);
    std::copy(question.begin(), question.end(), out.begin() + kHeaderBytes);
    return kHeaderBytes + question.size();
  }

  Decoded Decode(std::span<const uint8_t> datagram, uint64_t flow, uint64_t next_seq) override {
    if (datagram.size() < kHeaderBytes || next_seq <= flow) return {};
    const bool is_response = (datagram[2] & 0x80) != 0;
    if (!is_response) return {};
    const uint64_t id = static_cast<uint64_t>(datagram[0]) << 8 | datagram[1];
    // The newest request of this socket that carries the id.
    const uint64_t newest = (next_seq - 1 - flow) / flows_;
    const uint64_t age = (newest - id) % kIds;
    if (age > newest) return {};
    const uint64_t seq = (newest - age) * flows_ + flow;
    return {IsRightAnswer(datagram, Question(seq)) ? DecodeResult::kAnswer : DecodeResult::kWrong, seq};
  }

  uint64_t IdsPerFlow() const override { return kIds; }

 private:
  const std::vector<uint8_t>& Question(uint64_t seq) const { return questions_[seq % questions_.size()]; }

  static bool IsRightAnswer(std::span<const uint8_t> datagram, const std::vector<uint8_t>& question) {
    const int opcode = (datagram[2] >> 3) & 0xf;
    const bool truncated = (datagram[2] & 0x02) != 0;
    const int rcode = datagram[3] & 0xf;
    const int questions = datagram[4] << 8 | datagram[5];
    const int answers = datagram[6] << 8 | datagram[7];
    if (opcode != 0 || rcode != 0 || questions != 1 || (answers == 0 && !truncated)) return false;
    const auto body = datagram.subspan(kHeaderBytes);
    return body.size() >= question.size() && std::equal(question.begin(), question.end(), body.begin());
  }

  std::vector<std::vector<uint8_t>> questions_;
  uint64_t flows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeDnsWorkload(const std::vector<std::string>& names, uint64_t flows) {
  if (names.empty()) return absl::InvalidArgumentError("the dns workload needs at least one name");
  if (flows == 0) return absl::InvalidArgumentError("the dns workload needs at least one socket");
  std::vector<std::vector<uint8_t>> questions;
  for (const std::string& name : names) {
    absl::StatusOr<std::vector<uint8_t>> question = EncodeQuestion(name);
    if (!question.ok()) return question.status();
    questions.push_back(*std::move(question));
  }
  return std::make_unique<DnsWorkload>(std::move(questions), flows);
}

}  // namespace hedgerow::bench
