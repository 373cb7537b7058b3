/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a node's process and its kernel programs share: the state of rule R0, the records of the ring that carries
 * accepted entries to the process, the control requests by which alone the process changes the state, and counters.
 * bpf/node/raft/take.h and bpf/node/raft/control.h hold everything that is decided on the state; the kernel programs,
 * the simulator and the tests compile the same functions.
 */
#pragma once

#include "bpf/abi/base_abi.h"
#include "bpf/abi/siphash_abi.h"
#include "bpf/node/raft/decisions_abi.h"

/*
 * Raised with every change of a layout below, or of the datagrams that the ring's records hold (HR_PEER_VERSION);
 * pinned maps of another version are not adopted.
 */
#define HR_NODE_ABI_VERSION 6

#define HR_NODE_MEMBERS HR_RAFT_MAX_MEMBERS
#define HR_NODE_NO_MEMBER HR_RAFT_MAX_MEMBERS

/* A longer datagram is left to the process. Nodes send none above HR_PEER_DATAGRAM_MAX_BYTES; the maps' layout has
 * this. */
#define HR_NODE_DATAGRAM_MAX_BYTES 1472

/* As raft::Role. */
enum hr_node_role {
  HR_NODE_FOLLOWER = 0,
  HR_NODE_PRE_CANDIDATE = 1,
  HR_NODE_CANDIDATE = 2,
  HR_NODE_LEADER = 3,
};

/* What the kernel may do by itself now: hr_node_shared.capabilities. 0 is the fence of rule R1. */
enum hr_node_capability {
  HR_NODE_CAN_HEARTBEAT = 1, /* follower: answer the leader's; leader: count answers */
  HR_NODE_CAN_VOTE = 2,      /* answer pre-votes, refuse votes; candidate: count votes */
  HR_NODE_CAN_GRANT = 4,     /* give votes, in any later term: memory mode */
  HR_NODE_CAN_APPEND = 8,    /* store and acknowledge appends: memory mode */
  HR_NODE_CAN_COUNT = 16,    /* leader: count acknowledgements */
};
/* The side that may do one of these owns the log's end, and the vote. */
#define HR_NODE_OWNS_LOG (HR_NODE_CAN_APPEND | HR_NODE_CAN_GRANT)

/*
 * What a leader's or candidate's kernel knows of one member, by its slot. Whose slot it is stands here, under
 * the lock, and not only in the map of addresses: the masks and their members change in one critical section (R0).
 */
struct hr_node_member {
  __u64 match;      /* acknowledged in this term */
  __u64 round;      /* the latest heartbeat round it has answered in this term */
  __u64 replied_ns; /* when that answer came */
  __u64 loop_seq;   /* its loop's, as it last said */
  __u64 contact_ns; /* when loop_seq was last seen to change: progress, not an echo */
  __u32 node;       /* id; 0: no member */
  __u32 reserved;
};

/*
 * The state of rule R0. It is one map element under one lock. Kernel programs change it in one critical section per
 * datagram; the process only through control requests, and never by an update of the element.
 *
 * While `capabilities` has one of HR_NODE_OWNS_LOG, the log's end (last_index, last_term) and the vote belong to the
 * kernel: the process takes them back with HR_NODE_FENCE before it promises or changes anything.
 */
struct hr_node_shared {
  __u64 incarnation; /* of the process, which its datagrams carry; 0: none yet */
  struct hr_raft_state raft;
  __u64 matched;             /* the log is known to equal the leader's of this term up to here */
  __u64 leader_commit;       /* what that leader has said to be committed */
  __u64 heard_ns;            /* when that leader was last heard by the kernel */
  __u64 election_timeout_ns; /* within it after heard_ns no vote is given (dissertation section 4.2.3) */
  __u64 leader_timeout_ns;   /* as the leader's heartbeats say */
  __u64 lease_until_ns;      /* CLOCK_MONOTONIC; past it, the kernel answers nothing (R5) */
  __u64 term_max;            /* the kernel votes in no later term; 0: in any (cluster/raft/term_limit.h) */
  __u64 loop_seq;            /* turns of the process's loop */
  __u64 quorum_index;        /* leader: the process has been woken for this index ... */
  __u64 quorum_round;        /* ... and for this heartbeat round */
  __u32 config_epoch;
  __u32 voters;       /* mask of slots */
  __u32 next_voters;  /* under a joint configuration: a majority of them is needed as well (R6); else 0 */
  __u32 self;         /* slot; HR_NODE_NO_MEMBER */
  __u32 role;         /* enum hr_node_role */
  __u32 capabilities; /* mask of enum hr_node_capability */
  __u32 votes;        /* candidate, pre-candidate: mask of slots */
  __u32 every_ack;    /* leader: mask of members whose every acknowledgement wakes the process (their window is full) */
  __u32 tell_suspicion; /* a pre-vote that would be granted in a term in which no vote may be given here is the
                           process's */
  __u32 reserved;
  struct hr_node_member members[HR_NODE_MEMBERS];
};
HR_STATIC_ASSERT(sizeof(struct hr_node_shared) % 8 == 0, "hr_node_shared");

/*
 * Datagrams of one sender that were seen, as cluster/wire/replay_window.h; an element with a lock of its own, one for
 * each slot. `incarnation` 0: not known yet; such a sender's datagrams are left to the process.
 */
#define HR_NODE_WINDOW_NUMBERS 4096
struct hr_node_window {
  __u64 incarnation;
  __u64 floor;
  __u64 highest;
  __u64 seen[HR_NODE_WINDOW_NUMBERS / 64];
};

/*
 * An element of map `node_keys`: a cluster key under its id (hr_key_id), and the one that seals once more under
 * HR_NODE_KEY_SEALS, which is no key's id.
 */
#define HR_NODE_KEY_SEALS 0
#define HR_NODE_KEYS 8 /* two that are valid, the one that seals, and those of a change that is not finished */
struct hr_node_key {
  struct hr_siphash_key key;
  __u32 id;
  __u32 reserved;
};

/* Counters that the process and its kernel programs draw from, by atomic additions; mapped into the process. */
struct hr_node_numbers {
  __u64 packet_number;     /* of the last datagram to peers */
  __u64 announce_sequence; /* of the last announcement */
};

/*
 * One record of the ring: a vote that was given, or an append that was accepted, whose datagram follows. Two sizes are
 * reserved.
 */
enum hr_node_record_kind {
  HR_NODE_RECORD_VOTE = 1,   /* term and `from`, the candidate */
  HR_NODE_RECORD_APPEND = 2, /* the datagram as it came */
};

struct hr_node_record {
  __u32 kind; /* enum hr_node_record_kind */
  __u32 from; /* node id */
  __u64 term;
  __u64 prev_index; /* append: its entries follow this one ... */
  __u64 last_index; /* ... up to this one */
  __u64 arrived_ns;
  __u32 bytes; /* of the datagram; 0 for a vote */
  __u32 reserved;
};
#define HR_NODE_RECORD_HEAD_BYTES 48
HR_STATIC_ASSERT(sizeof(struct hr_node_record) == HR_NODE_RECORD_HEAD_BYTES, "hr_node_record");
#define HR_NODE_RECORD_SMALL_BYTES 256
#define HR_NODE_RECORD_LARGE_BYTES (HR_NODE_RECORD_HEAD_BYTES + HR_NODE_DATAGRAM_MAX_BYTES + 8)
#define HR_NODE_RING_BYTES (8u << 20)

/* Control requests. The program answers with one of enum hr_node_control_result and, in `shared`, the state after it.
 */
enum hr_node_operation {
  HR_NODE_READ = 1,
  HR_NODE_ADOPT = 2, /* a process begins: `incarnation` becomes the state's and `capabilities` 0, whatever it was */
  HR_NODE_FENCE = 3, /* `capabilities` = 0 */
  HR_NODE_OPEN = 4, /* the process's state after it has promised or changed something, and what the kernel may do now */
  /* A turn of the loop: lease_until_ns, term_max, election_timeout_ns, every_ack; loop_seq grows by one. In the same
     term: matched; and the log's end, unless it is the kernel's. */
  HR_NODE_LEASE = 5,
};

enum hr_node_control_result {
  HR_NODE_DONE = 0,
  HR_NODE_STALE = 1,   /* of another incarnation: another process has taken over */
  HR_NODE_REFUSED = 2, /* against R1 or R7: not fenced, a smaller term, a second vote; a fault of the process */
  HR_NODE_INVALID = 3, /* no such request */
};

struct hr_node_control {
  __u32 operation;              /* enum hr_node_operation */
  __u32 result;                 /* out; enum hr_node_control_result */
  __u64 incarnation;            /* of the process that asks */
  struct hr_node_shared shared; /* OPEN and LEASE: in; always: out */
};

/* The other control program's: from now on this member is in this incarnation, and all numbers up to `floor` are old.
 */
struct hr_node_window_control {
  __u32 slot;
  __u32 result; /* out; enum hr_node_control_result */
  __u64 incarnation;
  __u64 floor;
};

/* Why a peer datagram was not worked off by the kernel, or that it was. Numbers are never reused. */
enum hr_node_event {
  HR_NODE_EVENT_HEARTBEAT_ANSWERED = 0,
  HR_NODE_EVENT_HEARTBEAT_COUNTED = 1, /* an answer, by a leader; consumed */
  HR_NODE_EVENT_PRE_VOTE_ANSWERED = 2,
  HR_NODE_EVENT_VOTE_REFUSED = 3,
  HR_NODE_EVENT_VOTE_GRANTED = 4,
  HR_NODE_EVENT_VOTE_IGNORED = 5, /* the leader was heard lately */
  HR_NODE_EVENT_VOTE_COUNTED = 6,
  HR_NODE_EVENT_APPEND_STORED = 7,
  HR_NODE_EVENT_ACK_COUNTED = 8,
  HR_NODE_EVENT_WOKEN_FOR_COMMIT = 9, /* passed on because it moved the quorum's index */
  HR_NODE_EVENT_WOKEN_FOR_ROUND = 10,
  HR_NODE_EVENT_WOKEN_FOR_VOTES = 11,
  HR_NODE_EVENT_WOKEN_FOR_ACK = 12, /* every_ack, a refusal, or a follower that has started again */
  HR_NODE_EVENT_PASSED_KIND = 13,   /* the process's business */
  HR_NODE_EVENT_PASSED_FENCED = 14, /* `capabilities` does not have it */
  HR_NODE_EVENT_PASSED_LEASE = 15,
  HR_NODE_EVENT_PASSED_TERM = 16, /* of another term, or not of its leader */
  HR_NODE_EVENT_PASSED_ROLE = 17,
  HR_NODE_EVENT_PASSED_HOLE = 18,  /* an append that does not follow the log's end */
  HR_NODE_EVENT_PASSED_BATCH = 19, /* no entries, or of several terms */
  HR_NODE_EVENT_PASSED_SIZE = 20,
  HR_NODE_EVENT_PASSED_RING_FULL = 21,
  HR_NODE_EVENT_PASSED_INCARNATION = 22, /* of an incarnation that is not the known one */
  HR_NODE_EVENT_PASSED_MALFORMED = 23,   /* for the process to count */
  HR_NODE_EVENT_DROPPED_TAG = 24,
  HR_NODE_EVENT_DROPPED_REPLAYED = 25,
  HR_NODE_EVENT_DROPPED_TOO_OLD = 26,
  HR_NODE_EVENT_BROADCAST = 27, /* datagrams that were cloned to peers, and ... */
  HR_NODE_EVENT_BROADCAST_COPIES = 28,
  HR_NODE_EVENT_BROADCAST_FAILED = 29, /* copies that could not be sent */
  HR_NODE_EVENT_RESIGNED = 30,         /* RESIGNs sent by the clock, which counts them itself (hr_watch_clock) */
  HR_NODE_EVENT_PASSED_EPOCH = 31,     /* of another configuration */
  HR_NODE_EVENT_PASSED_SOURCE = 32,    /* not from where its member is known to be */
  HR_NODE_EVENT_ANSWER_FAILED = 33,    /* decided, but the answer could not be sent: as if it were lost on the way */
  HR_NODE_EVENT_PASSED_SUSPICION = 34, /* a pre-vote, by which the process learns that the leader is suspect */
  HR_NODE_EVENT_PASSED_CONFIGURATION = 35, /* an append with a configuration: taken up behind the fence */
  HR_NODE_EVENT_PASSED_NO_MEMBER = 36,     /* counted by slot, and the slot is another's by now */
  HR_NODE_EVENT_DOORBELL = 37, /* in place of WOKEN_FOR_COMMIT or _ROUND: the process is awake and looks by itself */
  HR_NODE_EVENT_APPEND_STORED_UNSAID = 38, /* the next append's acknowledgement will say it, too */
  HR_NODE_EVENT_DROPPED_KEY = 39,          /* sealed with a cluster key that this node does not have */
  HR_NODE_EVENT_COUNT = 40,
};

struct hr_node_stats {
  __u64 events[HR_NODE_EVENT_COUNT];
};
