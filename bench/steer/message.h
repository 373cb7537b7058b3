// SPDX-License-Identifier: Apache-2.0
//
// The messages of sources to collectors in the experiments on steering, and their answers. The id stands first, where
// Hedgerow's profile `raw` looks for it, and the source's number behind it, where `--gateway-field 4:4` does. On TCP
// messages follow each other without separators. Pure; used by hr-steer-load and hr-steer-collector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace hedgerow::bench {

struct SteerMessage {
  static constexpr uint32_t kMagic = 0x31525448;  // "HTR1"
  static constexpr uint8_t kAnswerWanted = 1;
  static constexpr uint8_t kAnswer = 2;
  static constexpr uint8_t kNoSlot = 255;

  uint32_t id = 0;
  uint32_t source = 0;
  uint32_t magic = kMagic;
  uint16_t bytes = 0;  // of the whole message, this header included
  uint8_t flags = 0;
  uint8_t slot = kNoSlot;  // of an answer: the worker that gives it
  uint32_t pid = 0;        // of an answer
  uint32_t pad = 0;
};
static_assert(sizeof(SteerMessage) == 24);

constexpr size_t kSteerMessageMost = 1400;  // one packet on any link

// The header at the beginning of `bytes`. Nothing when it is cut short or is no header; the caller tells the two apart
// by the size.
inline std::optional<SteerMessage> ParseSteerMessage(std::span<const uint8_t> bytes) {
  SteerMessage message;
  if (bytes.size() < sizeof message) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.magic != SteerMessage::kMagic || message.bytes < sizeof message || message.bytes > kSteerMessageMost)
    return std::nullopt;
  return message;
}

// The answer to a message, as this worker gives it.
inline SteerMessage AnswerTo(const SteerMessage& message, uint8_t slot, uint32_t pid) {
  SteerMessage answer = message;
  answer.bytes = sizeof answer;
  answer.flags = SteerMessage::kAnswer;
  answer.slot = slot;
  answer.pid = pid;
  return answer;
}

}  // namespace hedgerow::bench
