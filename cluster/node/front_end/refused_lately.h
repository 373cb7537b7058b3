// SPDX-License-Identifier: Apache-2.0
//
// Which clients a front end has refused in the last minute, and why, in words for an operator: what is dropped in
// silence looks to a client like a node that is down. The counters have the numbers since the start. On the loop's
// thread.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cluster/node/net/net_address.h"
#include "cluster/wire/hkv.h"

namespace hedgerow::node {

class RefusedLately {
 public:
  enum class Why : uint8_t { kNotListed, kOpens, kBytes, kAnonymous, kUnproven, kClock };
  static constexpr uint64_t kLately_ns = 60'000'000'000;

  // `clients_key`: that lists the networks that are served.
  explicit RefusedLately(std::string clients_key) : clients_key_(std::move(clients_key)) {}

  void Note(Why why, const NetAddress& from, uint64_t now_ns);
  void Note(wire::HkvDenial why, const NetAddress& from, uint64_t now_ns);
  // A client has proved itself, by a key and its clock.
  void NoteAccepted() { refused_[static_cast<size_t>(Why::kClock)].alone = false; }

  // Sentences. A problem: as far as this node can tell it is its own fault.
  void Report(uint64_t now_ns, std::vector<std::string>& notes, std::vector<std::string>& problems) const;

 private:
  static constexpr size_t kWhys = 6;
  struct Refused {
    uint64_t count = 0;  // since `since_ns`
    uint64_t since_ns = 0;
    uint64_t last_ns = 0;
    NetAddress last{};
    bool alone = false;  // no client was accepted since
  };

  std::string Sentence(Why why, const Refused& refused, uint64_t now_ns) const;

  const std::string clients_key_;
  std::array<Refused, kWhys> refused_{};
};

}  // namespace hedgerow::node
