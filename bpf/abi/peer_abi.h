/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What nodes send to each other, as bytes: the header that every peer datagram begins with, the kinds of bodies,
 * and the reasons for which a datagram is not believed. docs/WIRE_FORMAT.md has the bodies. cluster/wire/peer.cc and
 * the kernel programs of a node (bpf/node/raft) write and read them. All integers are little-endian. In a body that a
 * kernel program reads or writes, they stand at multiples of their size.
 */
#pragma once

#include "bpf/abi/base_abi.h"

#define HR_PEER_MAGIC 0x31505248u /* "HRP1" */
#define HR_PEER_VERSION 4
#define HR_PEER_HEADER_BYTES 64
#define HR_PEER_MAX_BYTES 65507 /* the largest message: the largest UDP payload in IPv4, 65,535 less 20 and 8 */

/*
 * The longest datagram that a node sends; a longer message leaves in pieces (HR_PEER_PIECE). Every link carries an IPv6
 * packet of 1,280 bytes (RFC 8200 section 5), and the headers of IPv6 and UDP take 48 of them, so IP never makes
 * fragments.
 */
#define HR_PEER_DATAGRAM_MAX_BYTES 1232
#define HR_PEER_PIECES_MAX 64 /* of one message */

struct hr_peer_header {
  __u32 magic;
  __u8 version;
  __u8 kind;   /* enum hr_peer_kind */
  __u16 bytes; /* of the whole datagram */
  __u64 tag;   /* SipHash-2-4 of the whole datagram with this field 0; see siphash_abi.h */
  __u64 cluster_id;
  __u64 from_incarnation; /* drawn when the sending process starts, never 0 */
  __u64 packet_number;    /* sequence number of this sender's datagrams, over all receivers, from 1 */
  __u32 from;
  __u32 to; /* 0: every peer */
  __u64 term;
  __u32 config_epoch;
  __u32 key_id; /* hr_key_id() of the cluster key that made the tag, so that a forgery costs one tag while two keys are
                   valid */
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_header) == HR_PEER_HEADER_BYTES, "hr_peer_header is 64 bytes");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, kind) == 5, "kind");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, bytes) == 6, "bytes");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, tag) == 8, "tag");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, cluster_id) == 16, "cluster_id");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, from_incarnation) == 24, "from_incarnation");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, packet_number) == 32, "packet_number");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, from) == 40, "from");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, to) == 44, "to");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, term) == 48, "term");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, config_epoch) == 56, "config_epoch");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_header, key_id) == 60, "key_id");

enum hr_peer_kind {
  HR_PEER_HELLO = 1,
  HR_PEER_HELLO_ACK = 2,
  HR_PEER_VOTE_REQUEST = 3,
  HR_PEER_VOTE_REPLY = 4,
  HR_PEER_APPEND = 5,
  HR_PEER_APPEND_REPLY = 6,
  HR_PEER_HEARTBEAT = 7,
  HR_PEER_HEARTBEAT_REPLY = 8,
  HR_PEER_READ_INDEX = 9,
  HR_PEER_READ_INDEX_REPLY = 10,
  HR_PEER_TIMEOUT_NOW = 11,
  HR_PEER_FORWARD = 12,
  HR_PEER_FORWARD_ANSWER = 13,
  HR_PEER_RESIGN = 14, /* only a hint (DESIGN: a dying leader); for the whole cluster */
  HR_PEER_PIECE = 15,  /* part of a message that is longer than HR_PEER_DATAGRAM_MAX_BYTES; the process's */
  HR_PEER_LAST_ENTRY = 16,
  HR_PEER_KINDS = 17, /* one past the last */
};

/* The bodies that kernel programs read or write. Those of the other kinds: docs/WIRE_FORMAT.md. */
struct hr_peer_vote_request {
  __u64 asked_term;
  __u64 last_index;
  __u64 last_term;
  __u64 transfer_term;
  __u32 pre_vote; /* 0 or 1 */
  __u32 reserved;
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_vote_request) == 40, "hr_peer_vote_request");

struct hr_peer_vote_reply {
  __u64 asked_term;
  __u32 pre_vote; /* 0 or 1 */
  __u32 granted;  /* 0 or 1 */
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_vote_reply) == 16, "hr_peer_vote_reply");

/* The entries follow: term (8), index (8), kind (1), payload_bytes (4), payload; nothing is aligned there. */
struct hr_peer_append {
  __u64 prev_index;
  __u64 prev_term;
  __u64 commit;
  __u64 batch_term; /* the term of every entry; 0: there are none, or of several terms */
  __u32 count;
  __u32 flags; /* mask of HR_PEER_APPEND_MORE; other bits are 0 */
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_append) == 40, "hr_peer_append");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_peer_append, flags) == 36, "flags");

/* The append that follows it left together with it: one acknowledgement will do for both. A hint and no more. */
#define HR_PEER_APPEND_MORE 1u

struct hr_peer_append_reply {
  __u64 index;
  __u64 conflict_term;
  __u64 conflict_index;
  __u64 loop_seq; /* how often the sender's loop has turned: an answer of the kernel's alone is no progress */
  __u32 accepted; /* 0 or 1 */
  __u32 reserved;
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_append_reply) == 40, "hr_peer_append_reply");

struct hr_peer_heartbeat {
  __u64 round;
  __u64 commit;
  __u64 election_timeout_ns;
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_heartbeat) == 24, "hr_peer_heartbeat");

struct hr_peer_heartbeat_reply {
  __u64 round;
  __u64 matched;
  __u64 loop_seq; /* as in hr_peer_append_reply */
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_heartbeat_reply) == 24, "hr_peer_heartbeat_reply");

/*
 * The first of `successors` starts an election at once, the i-th after i times 2 ms; 0: no more. The term is
 * the header's. `stalled` marks a scheduling stall: the leader does not resign and names no successor, because its loop
 * only waits for a processor. The nodes that wait for the leader then wait a little longer.
 */
#define HR_PEER_SUCCESSORS 8
struct hr_peer_resign {
  __u64
      incarnation; /* of the leader that resigns; the header's from_incarnation, unless another sender speaks for it */
  __u32 leader;
  __u32 stalled; /* 0 or 1 */
  __u32 successors[HR_PEER_SUCCESSORS];
};
HR_STATIC_ASSERT(sizeof(struct hr_peer_resign) == 48, "hr_peer_resign");

#define HR_PEER_REPLY_MAX_BYTES 104 /* header and the largest body that a kernel program answers with */

/* Why a peer datagram is not believed. The numbers stay for ever: never reused, never reordered. */
enum hr_peer_drop {
  HR_PEER_DROP_NONE = 0,
  HR_PEER_DROP_TOO_SHORT = 1, /* less than a header */
  HR_PEER_DROP_MAGIC = 2,     /* something else altogether */
  HR_PEER_DROP_VERSION = 3,   /* a version that is not spoken here */
  HR_PEER_DROP_LENGTH = 4,    /* not as long as its header says */
  HR_PEER_DROP_OTHER_CLUSTER = 5,
  HR_PEER_DROP_OTHER_NODE = 6, /* `to` names another node */
  HR_PEER_DROP_TAG = 7,        /* made without the key, or damaged */
  HR_PEER_DROP_CONFIG_EPOCH = 8,
  HR_PEER_DROP_KIND = 9,                 /* a kind that is not spoken here */
  HR_PEER_DROP_MALFORMED = 10,           /* the tag is right, but the bytes are no message of this kind */
  HR_PEER_DROP_NO_MEMBER = 11,           /* the sender is no member of this cluster, or is this node itself */
  HR_PEER_DROP_INCARNATION_UNKNOWN = 12, /* the sender has not yet answered a HELLO */
  HR_PEER_DROP_OTHER_INCARNATION = 13,   /* of a former incarnation of the sender, or of one not yet known */
  HR_PEER_DROP_REPLAYED = 14,            /* its sequence number was seen */
  HR_PEER_DROP_TOO_OLD = 15,             /* its sequence number lies behind the replay window */
  HR_PEER_DROP_NONCE = 16,               /* a HELLO_ACK to no HELLO that waits for one */
  HR_PEER_DROP_HELLO_LIMIT = 17,         /* more HELLOs a second than are answered */
  HR_PEER_DROP_FOREIGN_LOG = 18, /* a HELLO_ACK from or to a member whose log is not the recorded one: a foreign log */
  HR_PEER_DROP_OTHER_DURABILITY = 19, /* a HELLO_ACK from a member of another durability mode */
  HR_PEER_DROP_PIECE = 20,  /* a piece that does not go with the others of its message, or a piece in pieces */
  HR_PEER_DROP_SOURCE = 21, /* from an address that is no member's, and that `peer_clients` does not list */
  HR_PEER_DROP_KEY = 22,    /* sealed with a cluster key that this node does not have */
  HR_PEER_DROP_TERM = 23,   /* of a term that the cluster cannot have reached yet */
  HR_PEER_DROPS = 24,       /* one past the last */
};
