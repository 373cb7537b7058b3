// SPDX-License-Identifier: Apache-2.0
//
// Makes a state machine of the chunks of a snapshot (incremental_snapshot.h). A node does so when it starts, and
// beside its loop when a leader has sent it a snapshot. The chunks were checked for damage; what is looked for here is
// a format that this program does not know, and an end that is missing.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cluster/raft/bytes.h"
#include "cluster/kv/state_machine.h"

namespace hedgerow::kv {

class StateLoader {
 public:
  StateLoader() : state_(std::make_unique<StateMachine>()) {}

  // In their order. False: error() says why, and nothing comes of it.
  bool Add(std::string_view chunk);
  // Nothing: the end is missing.
  std::unique_ptr<StateMachine> Finish();
  const std::string& error() const { return error_; }
  // Nothing is wrong with it: a later program wrote it.
  bool of_unknown_version() const { return unknown_version_; }

 private:
  bool Fail(std::string why);
  bool AddRecord(ByteReader& reader);
  bool AddState(ByteReader& reader);
  bool AddValue(ByteReader& reader);
  bool AddSession(ByteReader& reader);
  bool AddWindowed(ByteReader& reader);
  bool AddItem(ByteReader& reader);
  bool AddSeen(ByteReader& reader);
  bool AddEnd(ByteReader& reader);

  std::unique_ptr<StateMachine> state_;
  uint32_t version_ = 0;
  bool begun_ = false;
  bool ended_ = false;
  bool unknown_version_ = false;
  uint64_t content_ = 0;
  uint64_t last_time_ns_ = 0;
  uint64_t passed_over_ = 0;  // sessions from before version 5
  std::string error_;
};

}  // namespace hedgerow::kv
