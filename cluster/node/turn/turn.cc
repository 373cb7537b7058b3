// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/turn/turn.h"

#include <utility>

namespace hedgerow::node {

Turn::Turn(TurnHost& host, kv::Replica& replica, Durability durability)
    : host_(host),
      replica_(replica),
      durability_(durability),
      writer_([&host](raft::Persist persist) { host.WriteLog(std::move(persist)); }) {}

bool Turn::Run(uint64_t now_ns) {
  now_ns_ = now_ns;
  bool worked = false;
  if (bridge_ != nullptr) {
    worked = bridge_->DoorbellRang();
    bridge_->BeginTurn(now_ns, replica_);
  }
  host_.TakeFromPeers();
  TakeDurable();
  replica_.Settle();
  FlushPeers();
  host_.TakeFromClients();
  if (bridge_ != nullptr) {
    bridge_->Tick(now_ns, replica_);
  } else {
    replica_.Tick();
  }
  host_.TakePosted();
  replica_.Settle();
  FlushPeers();
  if (bridge_ != nullptr && bridge_->Poll(now_ns, replica_)) worked = true;
  if (writer_.holds() && (!MayWriteLater() || writer_.Due(now_ns, replica_.raft().commit()))) WriteHeld();
  host_.TurnSnapshots();
  if (bridge_ != nullptr) bridge_->EndTurn(now_ns, replica_);
  host_.FollowReplica();
  FlushPeers();
  host_.FlushClients();
  return worked;
}

void Turn::Receive(uint64_t arrived_ns, raft::Message message) {
  if (bridge_ != nullptr) {
    bridge_->Receive(arrived_ns, std::move(message), replica_);
  } else {
    replica_.ReceiveMessage(arrived_ns, std::move(message));
  }
}

void Turn::Receive(const raft::LeaderResigns& hint) {
  if (bridge_ != nullptr) {
    bridge_->Resigned(hint, replica_);
  } else {
    replica_.Feed(hint);
  }
}

// A leader's entries do not wait for its own write (dissertation section 10.2.1).
void Turn::Persist(raft::Persist persist) {
  if (replica_.raft().role() == raft::Role::kLeader) FlushPeers();
  if (MayWriteLater() && LogWriter::CanBeHeld(persist)) return writer_.Hold(std::move(persist), now_ns_);
  writer_.Write(std::move(persist));
  TakeDurable();  // in memory mode it is durable already
}

// A leader's entries, if the other members can commit without them. What the kernel part is given rests on the log.
bool Turn::MayWriteLater() const {
  const raft::Raft& raft = replica_.raft();
  return durability_ == Durability::kMemory && raft.role() == raft::Role::kLeader &&
         LogWriter::OthersDecide(raft.configuration(), raft.self()) && (bridge_ == nullptr || bridge_->open());
}

// Answers that are there do not wait for this write.
void Turn::WriteHeld() {
  if (!writer_.holds()) return;
  FlushPeers();
  host_.FlushClients();
  writer_.WriteHeld();
  TakeDurable();
  replica_.Settle();
  FlushPeers();
  host_.FlushClients();
}

// The kernel part must not say less of this log than what is sent.
void Turn::FlushPeers() {
  if (bridge_ != nullptr) bridge_->BeforeSending(now_ns_, replica_.raft());
  host_.FlushPeers();
}

void Turn::TakeDurable() {
  const uint64_t durable = host_.TakeDurable();
  if (durable <= durable_) return;
  durable_ = durable;
  replica_.Feed(raft::Persisted{.sequence = durable});
}

}  // namespace hedgerow::node
