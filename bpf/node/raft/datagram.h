/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A peer datagram between its bytes and the decision on it (bpf/node/raft/take.h): what of it may be believed before
 * its tag is checked, whether its body is what its kind says, and which function decides. Pure, for both compilers. The
 * datagram lies in memory of HR_NODE_DATAGRAM_MAX_BYTES and 8 more, aligned to 8.
 */
#pragma once

#include "bpf/node/raft/node_maps_abi.h"
#include "bpf/node/raft/take.h"

union hr_node_body {
  struct hr_peer_vote_request vote_request;
  struct hr_peer_vote_reply vote_reply;
  struct hr_peer_append append;
  struct hr_peer_append_reply append_reply;
  struct hr_peer_heartbeat heartbeat;
  struct hr_peer_heartbeat_reply heartbeat_reply;
};

struct hr_node_datagram {
  struct hr_peer_header header;
  union hr_node_body body;
};
HR_STATIC_ASSERT(sizeof(struct hr_node_datagram) == HR_PEER_REPLY_MAX_BYTES, "the largest fixed body is 40 bytes");

/* Is it for this node, of its cluster, and as PeerCodec would take it but for the tag and the epoch? */
HR_INLINE int hr_node_header_fits(const struct hr_peer_header *header, __u32 bytes, __u64 cluster_id, __u32 self) {
  return header->magic == HR_PEER_MAGIC && header->version == HR_PEER_VERSION && header->bytes == bytes &&
         header->cluster_id == cluster_id && (header->to == 0 || header->to == self) && header->from != 0 &&
         header->from != self && header->kind != 0 && header->kind < HR_PEER_KINDS && header->key_id != 0 &&
         header->from_incarnation != 0 && header->packet_number != 0;
}

/* An entry: term (8), index (8), kind (1), payload_bytes (4), payload. */
#define HR_NODE_ENTRY_HEAD_BYTES 21
#define HR_NODE_ENTRY_CONFIGURATION 2 /* raft::EntryKind */
#define HR_NODE_ENTRIES_OFFSET (HR_PEER_HEADER_BYTES + (__u32)sizeof(struct hr_peer_append))
#define HR_NODE_ENTRIES_MAX ((HR_NODE_DATAGRAM_MAX_BYTES - HR_NODE_ENTRIES_OFFSET) / HR_NODE_ENTRY_HEAD_BYTES)

/* Entries stand unaligned. A kernel program loads them so on the machines whose kernels let it (x86, arm64). */
HR_INLINE __u64 hr_node_load_u64(const __u8 *at) {
#ifdef __bpf__
  return *(const __u64 *)at;
#else
  return hr_siphash_load(at);
#endif
}

HR_INLINE __u32 hr_node_load_u32(const __u8 *at) {
#ifdef __bpf__
  return *(const __u32 *)at;
#else
  return (__u32)hr_siphash_load_rest(at, 4);
#endif
}

/*
 * What is acknowledged must be readable by the process: exactly `count` entries of the batch's term in the order of
 * their indices, and nothing behind them. Its sender is trusted to mean what it says, not to be free of mistakes.
 * HR_NODE_EVENT_COUNT: so it is; otherwise why the batch is the process's. A configuration holds from the moment that
 * it is in the log, so it is taken up behind the fence (R1), by the process.
 */
HR_INLINE enum hr_node_event hr_node_entries_fault(const void *datagram, __u32 bytes) {
  const __u8 *base = (const __u8 *)datagram;
  const struct hr_peer_append *append = &((const struct hr_node_datagram *)datagram)->body.append;
  __u32 offset = HR_NODE_ENTRIES_OFFSET;
  __u32 count = append->count;

  for (__u32 i = 0; i < HR_NODE_ENTRIES_MAX; ++i) {
    __u32 payload_bytes;

    if (i >= count) break;
    HR_KEEP_BOUND(offset);
    if (offset > HR_NODE_DATAGRAM_MAX_BYTES - HR_NODE_ENTRY_HEAD_BYTES || offset + HR_NODE_ENTRY_HEAD_BYTES > bytes)
      return HR_NODE_EVENT_PASSED_MALFORMED;
    if (hr_node_load_u64(base + offset) != append->batch_term) return HR_NODE_EVENT_PASSED_MALFORMED;
    if (hr_node_load_u64(base + offset + 8) != append->prev_index + 1 + i) return HR_NODE_EVENT_PASSED_MALFORMED;
    if (base[offset + 16] == HR_NODE_ENTRY_CONFIGURATION) return HR_NODE_EVENT_PASSED_CONFIGURATION;
    if (base[offset + 16] > HR_NODE_ENTRY_CONFIGURATION) return HR_NODE_EVENT_PASSED_MALFORMED;
    payload_bytes = hr_node_load_u32(base + offset + 17);
    if (payload_bytes > HR_NODE_DATAGRAM_MAX_BYTES) return HR_NODE_EVENT_PASSED_MALFORMED;
    offset += HR_NODE_ENTRY_HEAD_BYTES + payload_bytes;
  }
  return count <= HR_NODE_ENTRIES_MAX && offset == bytes ? HR_NODE_EVENT_COUNT : HR_NODE_EVENT_PASSED_MALFORMED;
}

/* HR_NODE_EVENT_COUNT: the kernel may decide on it; otherwise why it is the process's. */
HR_INLINE enum hr_node_event hr_node_body_fault(const struct hr_node_datagram *datagram, __u32 bytes) {
  const __u32 body_bytes = bytes - HR_PEER_HEADER_BYTES;
  int fits = 0;

  switch (datagram->header.kind) {
    case HR_PEER_VOTE_REQUEST:
      fits = body_bytes == sizeof(struct hr_peer_vote_request) && datagram->body.vote_request.pre_vote <= 1 &&
             !datagram->body.vote_request.reserved;
      break;
    case HR_PEER_VOTE_REPLY:
      fits = body_bytes == sizeof(struct hr_peer_vote_reply) && datagram->body.vote_reply.pre_vote <= 1 &&
             datagram->body.vote_reply.granted <= 1;
      break;
    case HR_PEER_APPEND:
      fits = body_bytes >= sizeof(struct hr_peer_append) && !(datagram->body.append.flags & ~HR_PEER_APPEND_MORE);
      break;
    case HR_PEER_APPEND_REPLY:
      fits = body_bytes == sizeof(struct hr_peer_append_reply) && datagram->body.append_reply.accepted <= 1 &&
             !datagram->body.append_reply.reserved;
      break;
    case HR_PEER_HEARTBEAT: fits = body_bytes == sizeof(struct hr_peer_heartbeat); break;
    case HR_PEER_HEARTBEAT_REPLY: fits = body_bytes == sizeof(struct hr_peer_heartbeat_reply); break;
    default: return HR_NODE_EVENT_PASSED_KIND;
  }
  return fits ? HR_NODE_EVENT_COUNT : HR_NODE_EVENT_PASSED_MALFORMED;
}

/* What an answer says of the node: copied under the lock, together with the decision. */
struct hr_node_spoken {
  __u64 incarnation;
  __u64 term;
  __u32 config_epoch;
  __u32 reserved;
};

/*
 * One critical section of R0, with the lock held. `kind` is the datagram's (a constant where the caller knows it);
 * `room` says that a ring record is reserved: without it nothing is stored and no vote is given (R3).
 */
HR_INLINE enum hr_node_verdict hr_node_decide(struct hr_node_shared *shared, __u32 kind, struct hr_node_taken *taken,
                                              __u32 config_epoch, const union hr_node_body *body, int room,
                                              union hr_node_reply *reply, struct hr_node_spoken *spoken) {
  enum hr_node_verdict verdict = HR_NODE_PASS;

  if (!shared->incarnation) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_FENCED); /* no process to speak for yet */
  if (config_epoch != shared->config_epoch) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_EPOCH);
  switch (kind) {
    case HR_PEER_HEARTBEAT: verdict = hr_node_take_heartbeat(shared, taken, &body->heartbeat, reply); break;
    case HR_PEER_HEARTBEAT_REPLY: verdict = hr_node_take_heartbeat_reply(shared, taken, &body->heartbeat_reply); break;
    case HR_PEER_VOTE_REQUEST:
      if (!room && !body->vote_request.pre_vote && (shared->capabilities & HR_NODE_CAN_GRANT))
        return hr_node_pass(taken, HR_NODE_EVENT_PASSED_RING_FULL);
      verdict = hr_node_take_vote_request(shared, taken, &body->vote_request, reply);
      break;
    case HR_PEER_VOTE_REPLY: verdict = hr_node_take_vote_reply(shared, taken, &body->vote_reply); break;
    case HR_PEER_APPEND:
      if (!room) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_RING_FULL);
      verdict = hr_node_take_append(shared, taken, &body->append, reply);
      break;
    case HR_PEER_APPEND_REPLY: verdict = hr_node_take_append_reply(shared, taken, &body->append_reply); break;
    default: return hr_node_pass(taken, HR_NODE_EVENT_PASSED_KIND);
  }
  spoken->incarnation = shared->incarnation;
  spoken->term = shared->raft.term;
  spoken->config_epoch = shared->config_epoch;
  return verdict;
}

/* Has what was decided a record to submit? With any other outcome the reserved one is discarded. */
HR_INLINE int hr_node_keeps_record(enum hr_node_verdict verdict, const struct hr_node_taken *taken) {
  if (taken->event == HR_NODE_EVENT_APPEND_STORED_UNSAID) return verdict == HR_NODE_CONSUMED;
  return verdict == HR_NODE_ANSWER &&
         (taken->event == HR_NODE_EVENT_APPEND_STORED || taken->event == HR_NODE_EVENT_VOTE_GRANTED);
}

/* The kind of the answer to a request of this kind. */
HR_INLINE __u32 hr_node_answer_kind(__u32 kind) { return kind + 1; }

HR_INLINE __u32 hr_node_answer_bytes(__u32 kind) {
  if (kind == HR_PEER_APPEND) return HR_PEER_HEADER_BYTES + sizeof(struct hr_peer_append_reply);
  if (kind == HR_PEER_HEARTBEAT) return HR_PEER_HEADER_BYTES + sizeof(struct hr_peer_heartbeat_reply);
  return HR_PEER_HEADER_BYTES + sizeof(struct hr_peer_vote_reply);
}
