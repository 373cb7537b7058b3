// SPDX-License-Identifier: Apache-2.0
//
// What a node does with a client's request, whatever its role, which is what makes a copy sent to a standby
// worth anything: a read is confirmed through the leader and answered here, if one comes in time; a write is answered
// from the tables if it was applied already, else proposed, else forwarded to the leader with its age and one hop at
// most, else held for a while until there is a leader. NOT_LEADER is said only when none of these can be done. Like the
// Raft core it is a function of events; the node's loop carries out its actions.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/kv/command.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"

namespace hedgerow::kv {

// Who to answer: meaningful to the transport only.
struct ReplyTo {
  uint64_t client = 0;
  uint64_t request = 0;
  std::array<uint64_t, 5> way{};  // what else the transport needs to find back
};

struct Request {
  ReplyTo reply_to{};
  std::optional<std::string> read_key{};  // a read, ...
  std::vector<std::string> item_keys{};   // ... or one of memcached's items, all at one moment; else a write
  Command command{};
  uint64_t timeout_ns = 0;  // from the client's sending to when it no longer cares
  uint64_t age_ns = 0;      // how long other nodes have held it
  uint32_t hops = 0;
  std::array<uint16_t, 2> counted_at{};  // a read: WaitingReads

  bool is_read() const { return read_key.has_value() || !item_keys.empty(); }
};

struct Answer {
  enum class Kind : uint8_t { kResult, kValue, kNotLeader, kItems };
  ReplyTo reply_to{};
  Kind kind = Kind::kResult;
  Result result{};
  std::optional<std::string> value{};
  raft::NodeId leader_hint{};
  std::vector<std::pair<std::string, Item>> items{};  // kItems: those that are there, in the order asked for
};

// How many reads wait, in all and of each source: a place is a hash's, for a client's address or for its prefix.
// Sources that meet at one share it.
struct WaitingReads {
  size_t all = 0;
  std::vector<uint32_t> at = std::vector<uint32_t>(size_t{1} << 16);
};

// The other node's answer comes back under `tag`: ForwardAnswered.
struct Forward {
  uint64_t tag = 0;
  raft::NodeId to{};
  Request request{};
};

// The command stays with the router until its turn has come (MayBeProposed): each new leader queues all that
// waits, and copies of it all would keep it from leading.
struct ProposeCommand {
  uint64_t tag = 0;
  RequestKey key{};
};

struct StartRead {
  uint64_t tag = 0;
  uint64_t deadline_ns = 0;
};

using Action = std::variant<Answer, Forward, ProposeCommand, StartRead>;

struct RouterOptions {
  uint64_t hold_max_ns = 1'000'000'000;
  // A copy that nodes have held for longer is not proposed. Must stay below the dedupe window by more than a
  // packet can be under way.
  uint64_t copy_age_max_ns = 1'500'000'000;
  size_t waiting_max = 16'384;  // more are refused with kOverloaded
  // The same of their bytes: of memcached's clients, whom nobody knows, one request may have 60 KiB.
  size_t waiting_max_bytes = size_t{256} << 20;
  // Of memcached's items in one answer; and in all answers between two calls of BeginAnswers, so that small
  // questions for large items take neither the node's memory nor its loop.
  size_t items_max_bytes = size_t{1} << 20;
  size_t items_at_once_max_bytes = size_t{8} << 20;
  // Forwarded and not answered; more wait here. One that is not answered for so long does not count any more.
  // So an election does not make every node send all that waits there at once, which would keep the new leader
  // from leading.
  size_t forwards_max = 256;
  uint64_t forward_slot_ns = 100'000'000;
};

// A node whose machine stood still takes what waited before it (in its hypervisor's queue) for new. It finds
// that out by what others have committed meanwhile, or by its own clock, if that went on. A shorter standstill
// does no harm (docs/SAFETY.md, Exactly once).
constexpr uint64_t kStandstill_ns = 500'000'000;
// So long it takes nothing without a session then: what waited has come by that time.
constexpr uint64_t kClosedAfterStandstill_ns = 1'000'000'000;

class RequestRouter {
 public:
  // `first_tag` is drawn at random when the node starts: what another node still answers to a former incarnation must
  // not meet a request of this one (R8 says the same of reads).
  RequestRouter(raft::NodeId self, const StateMachine& state, RouterOptions options, uint64_t first_tag)
      : self_(self), state_(state), options_(options), next_tag_(first_tag) {}

  // `arrived_ns` is when the kernel received it: a node that stood still has old requests in its socket.
  void Receive(uint64_t now_ns, uint64_t arrived_ns, Request request, std::vector<Action>& actions);

  void LeaderChanged(uint64_t now_ns, raft::NodeId leader, std::vector<Action>& actions);
  // All copies of the request that wait for the same proposal.
  void ProposalRefused(uint64_t now_ns, const RequestKey& key, raft::RefusalReason reason,
                       std::vector<Action>& actions);
  // The turn of a ProposeCommand has come: the command, without elapsed_ns, which the loop stamps, and for how long
  // nodes have held the youngest copy; valid until the next call. Null: no client waits for it any more, or all copies
  // are too old by now.
  struct Wanted {
    const Command* command = nullptr;
    uint64_t age_ns = UINT64_MAX;
    uint64_t came_ns = 0;  // of that copy: Command::came_ns
  };
  Wanted MayBeProposed(uint64_t now_ns, const RequestKey& key, std::vector<Action>& actions);
  // It waits for room in the log: each copy as long as for a leader, and then it is refused with kOverloaded.
  void Queued(const RequestKey& key);
  // Or it waits because this node hands its leadership over: then it is refused like what waits for a leader.
  void HandsOver(bool hands_over) { hands_over_ = hands_over; }
  void StoodStill(uint64_t now_ns);
  // What was committed before this node's start is applied. Until then committed time moves faster than any clock, and
  // shows no standstill.
  void CaughtUp() { caught_up_ = true; }
  bool caught_up() const { return caught_up_; }
  // False: this node's state is wrong. It answers nothing of it: clients are sent elsewhere, and what waits here as
  // well.
  void SetServes(bool serves) { serves_ = serves; }
  bool IsProposed(const RequestKey& key) const;
  // A client's write without a session, or its CANCEL, that is new: a copy of what is known or waits here takes no
  // place, and must not be told that nothing was done.
  bool TakesPlaceInWindow(const Request& request) const;
  // What the node that a request was forwarded to says. It has applied it, or can do nothing with it.
  void ForwardAnswered(uint64_t now_ns, uint64_t tag, raft::NodeId from, const Answer& answer,
                       std::vector<Action>& actions);
  // Once for whatever is answered in one go.
  void BeginAnswers() { items_bytes_ = 0; }
  void ReadReady(uint64_t tag, std::vector<Action>& actions);
  // The key of hkv's that this read is of. Null: it is of items, or no client waits for it any more.
  const std::string* ReadKey(uint64_t tag) const;
  void ReadRefused(uint64_t tag, std::vector<Action>& actions);
  // The state machine has applied this request, here. `of_this_term`: this node leads, and has proposed the entry
  // since.
  void Applied(uint64_t now_ns, const RequestKey& key, const Result& result, bool of_this_term,
               std::vector<Action>& actions);
  // The state machine is another, further on: what it knows is answered.
  void StateReplaced(std::vector<Action>& actions);
  void Tick(uint64_t now_ns, std::vector<Action>& actions);

  uint64_t next_deadline_ns() const;
  size_t waiting() const { return waiting_.size(); }
  size_t waiting_bytes() const { return waiting_bytes_; }
  const WaitingReads& reads() const { return reads_; }

  struct Counters {
    uint64_t forwards = 0;
    uint64_t forwards_queued = 0;   // waited for an answer to earlier ones
    uint64_t overloaded = 0;        // refused: too many wait, or no room in the log came in time
    uint64_t superseded = 0;        // not done and not answered: late copies
    uint64_t standstills = 0;       // this node found that it had stood still
    uint64_t after_standstill = 0;  // writes without a session that were refused for that
  };
  const Counters& counters() const { return counters_; }
  // Writes that came to nothing here: refused for want of room or of a leader, or their clients have given up. Since
  // the last one that was answered with an outcome.
  struct Failing {
    uint64_t writes = 0;
    uint64_t since_ns = 0;  // the first
    uint64_t last_ns = 0;
  };
  const Failing& failing() const { return failing_; }

 private:
  struct PendingRequest {
    Request request;
    size_t bytes = 0;
    uint64_t arrived_ns = 0;
    uint64_t hold_until_ns = 0;  // proposed or forwarded no later
    uint64_t end_ns = 0;
    bool placed = false;    // proposed here, or forwarded to the present leader
    bool proposed = false;  // here, to the present leader
    bool queued = false;    // and waits for room in the log
    uint32_t tries = 0;     // proposals and forwards of this copy, to whichever leader
    bool has_slot = false;  // counts among the forwards that are not answered
    raft::NodeId forwarded_to{};
  };

  void FollowCommittedTime(uint64_t now_ns);
  void Answered(const RequestKey& key, const Result& result, bool of_this_term, std::vector<Action>& actions);
  uint64_t Age_ns(uint64_t now_ns, const PendingRequest& waiting) const;
  uint64_t End_ns(const PendingRequest& waiting) const;
  bool HasRoomFor(size_t bytes) const;
  bool IsQueued(const RequestKey& key) const;
  void WaitForRoom(uint64_t tag, PendingRequest& waiting);
  Answer ItemsAnswer(const Request& request);
  void Overloaded(uint64_t tag, std::vector<Action>& actions);
  void ForwardIt(uint64_t now_ns, uint64_t tag, std::vector<Action>& actions);
  void ForwardMore(uint64_t now_ns, std::vector<Action>& actions);
  void FreeSlot(PendingRequest& waiting);
  void FreeSlots(uint64_t now_ns);
  void Place(uint64_t now_ns, uint64_t tag, std::vector<Action>& actions);
  void Refuse(uint64_t tag, std::vector<Action>& actions);
  void CameToNothing(const Request& request);
  void HasOutcome(const Request& request, const Result& result);
  void CountRead(const Request& request, int change);
  void Remove(uint64_t tag);
  void EndAt(uint64_t tag, uint64_t end_ns);

  raft::NodeId self_;
  const StateMachine& state_;
  RouterOptions options_;
  raft::NodeId leader_;
  bool hands_over_ = false;
  bool serves_ = true;
  bool caught_up_ = false;
  uint64_t next_tag_;
  size_t waiting_bytes_ = 0;
  WaitingReads reads_;
  size_t items_bytes_ = 0;                           // answered since BeginAnswers
  std::map<uint64_t, PendingRequest> waiting_;       // by tag
  std::map<RequestKey, std::set<uint64_t>> by_key_;  // the writes among them
  std::set<std::pair<uint64_t, uint64_t>> by_end_;   // (end, tag)

  // Of the present leader.
  size_t slots_taken_ = 0;
  std::deque<std::pair<uint64_t, uint64_t>> slots_;  // (when it ends at the latest, tag), some of them free by now
  std::deque<uint64_t> to_forward_;                  // tags, some of them gone by now
  Counters counters_;
  // Committed time as this node has applied it, when it last moved; and how far it is ahead of this node's
  // clock, which has run since or not (0 at least: what committed time lags behind is forgotten).
  uint64_t followed_committed_ns_ = 0;
  uint64_t followed_at_ns_ = 0;
  uint64_t ahead_ns_ = 0;
  uint64_t closed_until_ns_ = 0;
  uint64_t now_ns_ = 0;  // of the latest event
  Failing failing_;
};

}  // namespace hedgerow::kv
