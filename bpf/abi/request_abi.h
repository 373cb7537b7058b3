/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The state the kernel programs keep: flows, fragments, the scoreboard (key -> request), the requests, the parked
 * copies, the timing wheel with its clock, the leader map and what is known of each backend. Written by the kernel
 * programs; user space reads, and changes the leader map only through the control program.
 */
#pragma once

#include "bpf/abi/announce_abi.h"
#include "bpf/abi/base_abi.h"
#include "bpf/abi/config_abi.h"

/* Key of the scoreboard: what makes two packets the same request. */
struct hr_request_key {
  struct hr_address client;
  __u8 correlation[HR_CORRELATION_BYTES]; /* zero-padded */
  __u16 client_port_be;
  __u16 service;
  __u32 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_request_key) == 40, "hr_request_key is 40 bytes");

/*
 * The scoreboard: sets of 8 references, a cache line each; a key's hash picks the set. A reference (0 = empty) is
 * generation (32 bits) | tag (12 bits of the hash) | request index (20 bits), changed by compare-and-swap only. It is
 * good while the request's word still carries its generation. The first HR_HOT_SETS sets are tried first: they stay in
 * cache, which a table for every request that could ever wait does not.
 */
#define HR_HOT_SETS 1024
#define HR_SET_WAYS 8
struct hr_scoreboard_set {
  __u64 ways[HR_SET_WAYS];
};
#define HR_MAX_REQUESTS (1u << 20)
#define HR_REFERENCE(generation, tag, request) \
  (((__u64)(generation) << 32) | ((__u64)((tag)&0xfff) << 20) | ((request) & (HR_MAX_REQUESTS - 1)))
#define HR_REFERENCE_REQUEST(reference) ((__u32)(reference) & (HR_MAX_REQUESTS - 1))
#define HR_REFERENCE_TAG(reference) ((__u32)((reference) >> 20) & 0xfff)
#define HR_REFERENCE_GENERATION(reference) ((__u32)((reference) >> 32))

/*
 * Free indices: each CPU keeps some of its own, taken and given back by plain stores, and exchanges whole batches with
 * a stack that all CPUs share (free_list.bpf.h). The last one given back is the first one taken, since its memory is
 * still in cache. A table keeps no more than a 16th of its indices in this way (hr_load_config.free_batch).
 */
enum hr_free_list_id { HR_FREE_REQUESTS = 0, HR_FREE_PARKED = 1, HR_FREE_LISTS = 2 };
#define HR_FREE_BATCH 15
#define HR_FREE_KEPT(batch) ((batch) > 1 ? 2 * (batch)-1 : 0) /* a CPU's most; a small table has batches of one */
struct hr_free_batch {
  __u32 index[HR_FREE_BATCH];
};
struct hr_free_cache {
  __u32 count;
  __u32 index[2 * HR_FREE_BATCH];
  __u32 pad;
};

enum hr_request_state {
  HR_STATE_FREE = 0,
  HR_STATE_PENDING = 1,
  HR_STATE_ANSWERED = 2,
  HR_STATE_NACKED = 3,
  HR_STATE_EXPIRED = 4,  /* past its deadline; its first late answer still reaches the client */
  HR_STATE_REMOVING = 6, /* the clock is taking it out of the scoreboard */
  HR_STATE_CLAIMING = 7, /* a splitter is still publishing it, and no other program may change it */
};

/* A request's word: generation (32 bits) | winner (8) | flags (8) | state (8), changed by compare-and-swap only. */
#define HR_WORD_STATE(word) ((__u8)((word)&0xff))
#define HR_WORD_DETACHED (1ull << 8) /* the scoreboard no longer refers to it: a newer request took the key */
#define HR_WORD_WINNER(word) ((__u8)(((word) >> 16) & 0xff))
#define HR_WORD_GENERATION(word) ((__u32)((word) >> 32))
#define HR_WORD(generation, winner, flags, state) \
  (((__u64)(generation) << 32) | ((__u64)(winner) << 16) | (flags) | (__u64)(state))

enum hr_request_flags {
  HR_REQUEST_KEY_REUSED = 1u << 0,    /* an older request had this key within its retention: check what replies echo */
  HR_REQUEST_FIRST_HEALTHY = 1u << 1, /* the first send's backend was HEALTHY: its answer time is a fair sample */
  HR_REQUEST_NO_BUDGET = 1u << 2,     /* the budget had no hedge left for it (counted once) */
  HR_REQUEST_PUSHED_BACK = 1u << 3,   /* a hedge was already held back because a backend asked for it (counted once) */
  HR_REQUEST_ONLY_DRAINED = 1u << 4,  /* no hedge was made, for only drained backends were left (counted once) */
  /* 1u << 5 and 6: the way by which it came */
  HR_REQUEST_IPV6 = 1u << 7, /* the parked copy begins with an IPv6 header */
};
/* enum hr_way (bpf/proxy/way.bpf.h), in an hr_request's flags. */
#define HR_REQUEST_BY(way) ((way) << 5)
#define HR_REQUEST_WAY(flags) (((flags) >> 5) & 3)

/* A request's client is one of so many places in `clients`. */
#define HR_CLIENT_BITS 12
#define HR_CLIENTS (1u << HR_CLIENT_BITS)

/* Map `requests`, index 1.. ; one life of a tracked request. Masks are over service-local backend indices. */
struct hr_request {
  __u64 word;
  struct hr_request_key key;
  __u64 sent_ns;                 /* when the splitter saw it; CLOCK_MONOTONIC, like all times here */
  __u64 due_ns;                  /* when the clock shall look again */
  __u64 fire_ns;                 /* when the first further attempt was due: its answer's time counts from there */
  __u64 done_ns;                 /* when it left PENDING */
  __u32 next;                    /* link in a wheel slot, or in the free list */
  __u32 armed;                   /* fine slot + 1 whose `live` this request holds; 0 = none. Taken back by exchange. */
  __u32 parked;                  /* index into `pool`, 0 = none */
  __u16 parked_bytes;            /* of the layer 3 packet */
  __u16 tag : 12;                /* of the key's hash */
  __u16 counted : 1;             /* in its service's and client's `held` (bpf/proxy/share.bpf.h) */
  __u32 set : 20;                /* its scoreboard set */
  __u32 client : HR_CLIENT_BITS; /* index into `clients` */
  __u32 mark;                    /* the client's skb mark */
  __u32 attempts;                /* sends claimed so far; claimed by compare-and-swap */
  __u8 flags;                    /* enum hr_request_flags; written before publication and by the clock */
  __u8 first;                    /* backend of the first send */
  __u8 rechecks;                 /* times the clock looked and did not send */
  __u8 in_flight;    /* mask of the backends at which it counts as in flight; changed by atomic and/or of its word
                        (load.bpf.h) */
  __u32 masks;       /* four masks of 8 bits, see below; changed by atomic and/or */
  __u32 outstanding; /* replies to older requests with this key that may still come, see below; changed by atomic and/or
                      */
  __u16 handed_tick; /* when the send was that `handed_to` names, in ticks of 2^21 ns; wraps after 137 s */
  __u8 hint;         /* the leader that a nack named: service-local index + 1; 0 = none */
  __u8 put_off;      /* 1 = its nack asked for a later hedge, not for one at once */
  __u8 handed_to;    /* the target of the last handover, or else of the last hedge (HR_HANDED_AS_HEDGE): service-local
                        index + 1; 0 = none */
  __u8 sent_again;   /* mask of the backends that handovers gave a second copy */
  __u8 trace;        /* the tracer that asked for it (hr_live.trace.session); 0 = none */
  __u8 trace_emitted; /* events of it so far */
};
HR_STATIC_ASSERT(sizeof(struct hr_request) == 128, "hr_request is two cache lines");

#define HR_HANDED_AS_HEDGE 0x80 /* in handed_to */
#define HR_HANDED_TICK_SHIFT 21 /* 2.1 ms; half of 16 bits is 68 s, longer than a deadline may be */
#define HR_HANDED_TICK(time_ns) ((__u16)((time_ns) >> HR_HANDED_TICK_SHIFT))

/* hr_request.masks: which backends... */
#define HR_MASKS_SENT(mask) ((__u32)(mask))          /* were sent it */
#define HR_MASKS_ANSWERED(mask) ((__u32)(mask) << 8) /* sent anything back, nacks included */
#define HR_MASKS_NOT_AWAITED(mask) \
  ((__u32)(mask) << 16)                               /* are not waited for: sent a nack, or were sent it as a probe */
#define HR_MASKS_FAILOVER(mask) ((__u32)(mask) << 24) /* were reached by failover rather than by a hedge */
#define HR_SENT_MASK(masks) ((masks)&0xff)
#define HR_ANSWERED_MASK(masks) (((masks) >> 8) & 0xff)
#define HR_NOT_AWAITED_MASK(masks) (((masks) >> 16) & 0xff)
#define HR_FAILOVER_MASK(masks) (((masks) >> 24) & 0xff)

/*
 * hr_request.outstanding: the backends from which a reply to an older request is outstanding (bits 0 to 7), those from
 * which two or more are (8 to 15), those from which one has come since this request has the key (16 to 23), and when
 * the youngest of those requests was sent, in ticks of 1.07 s (24 to 31, wraps after 275 s).
 *
 * A late reply cannot be told from one that was lost. So a reply counts as lost once the youngest was sent longer than
 * the deadline and the retention ago (and at most two ticks more), and until then its backend is asked under this key
 * only if no other healthy one is left. Two suffice: no request goes to a backend from which two are outstanding, but
 * where the client has given one up itself.
 */
#define HR_OUTSTANDING_TICK_SHIFT 30
#define HR_OUTSTANDING_TICK(time_ns) ((__u32)((time_ns) >> HR_OUTSTANDING_TICK_SHIFT) & 0xff)
#define HR_OUTSTANDING(one, two, tick) ((__u32)(one) | (__u32)(two) << 8 | (__u32)(tick) << 24)
#define HR_OUTSTANDING_NOW(outstanding) ((outstanding)&0xff)
#define HR_OUTSTANDING_TWO(outstanding) (((outstanding) >> 8) & 0xff)
#define HR_OUTSTANDING_CAME(outstanding) (((outstanding) >> 16) & 0xff)
#define HR_OUTSTANDING_SINCE(outstanding) ((outstanding) >> 24)

/* Map `pool`, index 1.. ; the bytes of a parked request. Layer 4 starts at a fixed place, so that checksums do. */
#define HR_PARKED_L3_BYTES 40
#define HR_PARKED_L4_BYTES 1496
#define HR_PARKED_BYTES 1500 /* largest layer 3 packet that is parked */
struct hr_parked {
  __u8 l3[HR_PARKED_L3_BYTES]; /* IPv6 header, or 20 bytes of nothing and an IPv4 header; as the client sent it */
  __u8 l4[HR_PARKED_L4_BYTES]; /* UDP header and payload, zero-padded to 4 bytes */
};
HR_STATIC_ASSERT(sizeof(struct hr_parked) == 1536, "hr_parked is 1536 bytes");

/* Shortest time for which a silent UDP flow is believed, and an unanswered request stays known; see
 * bpf/proxy/flow.bpf.h. */
#define HR_FLOW_UDP_NS 10000000000ull

/*
 * A client that makes more than hr_load_config.flow_part new flows in a tick of 8.6 s has the others in
 * `crowded_flows`: a map that is full forgets the flow that was silent longest, and a client that sends from ever new
 * ports must not make it forget others'. The same with hr_load_config.connection_part TCP connections that it has not
 * ended in a tick of 2.4 hours, longer than one may be silent. Those that have ended are there, too.
 */
#define HR_FLOW_TICK_SHIFT 33
#define HR_CONNECTION_TICK_SHIFT 43
#define HR_FLOW_PARTS 4       /* of `flows`: what a client may make anew in a tick, and the size of `crowded_flows` */
#define HR_FLOWS_MADE_BITS 21 /* limits.flows is at most 2^22 */
#define HR_FLOWS_MADE(flows) ((flows) & ((1u << HR_FLOWS_MADE_BITS) - 1))
#define HR_FLOWS_TICK(now_ns, shift) ((__u32)((now_ns) >> (shift)) << HR_FLOWS_MADE_BITS) /* wraps after 2,048 */

/*
 * Key of the maps `flows` (UDP), `connections` (TCP) and `crowded_flows` (both), all LRU: so that neither protocol's
 * clients push the other's out. Two kinds share a map: clients that may receive from a backend, and the backend of a
 * client's connection (TCP) or flow (HR_PAIR_FLOW).
 */
enum hr_flow_kind {
  HR_FLOW_REPLY = 0,      /* id = backend id -> value.id = service id */
  HR_FLOW_CONNECTION = 1, /* id = service id -> value.id = backend id */
};
struct hr_flow_key {
  struct hr_address client;
  __u16 client_port_be;
  __u16 id;
  __u8 protocol;
  __u8 kind;
  __u16 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_flow_key) == 24, "hr_flow_key is 24 bytes");
/* What the client of a flow waits for (bpf/proxy/asking.bpf.h). Times in ticks of 2^20 ns. */
#define HR_ASKING_TICK_SHIFT 20
enum hr_asking_state {
  HR_ASKING_ANSWERED = 1u << 0,         /* its backend has sent it something */
  HR_ASKING_OPENING_ANSWERED = 1u << 1, /* in answer to its first datagram */
  HR_ASKING_OPENING = 1u << 2,          /* the last datagram is of the first one's kind */
};
#define HR_ASKING_FORMER_SHIFT 4 /* its upper half: the place + 1 of a backend that never answered the flow */
struct hr_asking {
  __u32 since;   /* when the datagram was sent that is repeated */
  __u32 last;    /* when the last one was; 0 = the backend has answered since */
  __u16 gap;     /* between the last two */
  __u16 hash;    /* of the last one's payload */
  __u16 opening; /* kind of the first one, by length and first bytes */
  __u8 repeats;  /* how surely they are repetitions: HR_ASKING_OWED */
  __u8 state;    /* enum hr_asking_state */
};
#define HR_SYN_REFUSED 1 /* a time long ago: the next SYN goes elsewhere */
struct hr_flow {
  __u64 seen_ns; /* last packet from the client, under profile flow also from its backend, to within a second */
  union {
    struct {
      __u64 untracked_ns; /* last packet that was forwarded untracked: its answer finds no tracked request */
    };
    struct hr_asking asking; /* of HR_FLOW_CONNECTION, UDP */
    struct {                 /* the same, TCP */
      __u64 syn_ns;          /* when its SYN was sent that nothing has answered; HR_SYN_REFUSED; 0 = it was answered */
      __u32 client;          /* of that SYN, and of every HR_FLOW_REPLY: index into `clients` */
      __be32 syn_number;     /* its sequence number, which its answer names */
    };
  };
  __u32 id;
  __u16 closing; /* TCP: 1 = a FIN or RST was seen since the last SYN */
  __u16 way;     /* enum hr_way, of the client's last packet */
};

/*
 * Map `late_requests` (LRU), key = hr_request_key: a request whose place is free again, and of which backends may have
 * more to say. By its key a late reply is known; what names no such request, and none that waits, is not the proxy's.
 */
struct hr_late {
  __u64 freed_ns;
  __u64 wait;   /* of its first backend, when it was sent */
  __u32 winner; /* HR_NO_BACKEND: none has answered; changed by compare-and-swap */
  __u8 sent;    /* mask of the backends that were sent it, or owe an older one's reply under its key */
  __u8 answered;
  __u8 way;    /* enum hr_way */
  __u8 failed; /* mask of that backend, if it counted against it at the end of its retention (impaired.bpf.h) */
};
HR_STATIC_ASSERT(sizeof(struct hr_late) == 24, "hr_late is 24 bytes");
#define HR_LATE_NS 60000000000ull /* twice the longest usual timeout of a client */

/* Key of the fragment map (LRU): RFC 791 / RFC 8200 identification of one fragmented datagram. */
struct hr_fragment_key {
  struct hr_address source;
  struct hr_address destination;
  __u32 id;
  __u8 protocol;
  __u8 pad[3];
};
HR_STATIC_ASSERT(sizeof(struct hr_fragment_key) == 40, "hr_fragment_key is 40 bytes");
enum hr_fragment_action {
  HR_FRAGMENT_TO_BACKEND = 1, /* id = backend id */
  HR_FRAGMENT_TO_CLIENT = 2,  /* id = service id */
  HR_FRAGMENT_DROP = 3,       /* id = service id */
};
struct hr_fragment {
  __u64 seen_ns;
  __u16 action;
  __u16 way; /* enum hr_way, where `action` is to a client */
  __u32 id;
  __u32 bytes; /* of layer 4, of all fragments so far */
  __u32 total; /* as the last fragment tells; 0 = it has not come yet */
};

/*
 * Map `backend_states`, index = backend id; and HR_TCP_STATE(backend id), where a SYN is the request and a SYN-ACK its
 * answer: the kernel of a stopped server sends those, so they say nothing of what the server answers itself.
 */
#define HR_TCP_STATE(backend_id) ((backend_id) + HR_MAX_BACKENDS)
/* A SYN is unanswered just before its client sends it again (RFC 6298 section 2.1). */
#define HR_SYN_ANSWERED_NS 900000000ull
enum hr_health {
  HR_HEALTHY = 0,
  HR_SUSPECT = 1,  /* silent while requests wait: both copies at once, for at most one election timeout */
  HR_DOWN = 2,     /* still silent: requests go to the standby, one in 64 doubled as a probe */
  HR_IMPAIRED = 3, /* it lives, and fails at what another backend answers: asked like one that is down */
};
/*
 * A wait: since when, to within 8 us, and in its low bits the client; 0 = none. As a number it is that time.
 * HR_NO_CLIENT is the client of none. HR_WAIT_UNPROVED: nothing shows that what waits is owed an answer
 * (bpf/proxy/health.bpf.h).
 */
#define HR_WAIT_UNPROVED ((__u64)HR_CLIENTS)
#define HR_WAIT_MASK (2ull * HR_CLIENTS - 1)
#define HR_WAIT(time_ns, client) (((time_ns) & ~HR_WAIT_MASK) | (client))
#define HR_WAIT_CLIENT(wait) ((__u32)(wait) & (HR_CLIENTS - 1))
#define HR_NO_CLIENT HR_CLIENTS

#define HR_CATCHING_UP 1ull /* in paused_until: it has answered nothing yet that was sent after its last pause */
#define HR_PAUSED_UNTIL_NS(paused_until) ((paused_until) & ~HR_CATCHING_UP)

struct hr_backend_state {
  __u64 wait_since;      /* the first send since its last datagram, or the first of those that are owed an answer */
  __u64 last_receive_ns; /* last datagram */
  __u64 health_since_ns;
  __u64 answer_ewma_ns; /* weight 1/8 */
  __u32 health;         /* enum hr_health: to all clients; bpf/proxy/health.bpf.h */
  __u32 probe_counter;
  __u64 paused_until; /* answers to requests sent earlier were held back by a pause; 0 = there was none */
  /*
   * The wait of a second witness: another client's first send since the backend's last datagram, or with the same
   * client the request that another backend has answered.
   */
  __u64 attested_since;
  __u64 answered_ns; /* while it is not healthy: its last answer, too late to make it so; one-way: the last trial */
};
HR_STATIC_ASSERT(sizeof(struct hr_backend_state) == 64, "one cache line");

/* A copy that was due at `fire_ns` is noted as sent so much later at most, or its backend's silence stays unattested.
 */
#define HR_ATTEST_SLACK_NS 1000000

/* The second wait of this silence. One from before it is left of a send that met the answer which ended the former
 * silence. */
HR_INLINE __u64 hr_second_wait(__u64 wait, __u64 second) { return second + HR_ATTEST_SLACK_NS < wait ? 0 : second; }

/* The same, if what waits is owed an answer: from then on the silence counts for all clients. */
HR_INLINE __u64 hr_attested(__u64 wait, __u64 second) {
  return wait & HR_WAIT_UNPROVED ? 0 : hr_second_wait(wait, second);
}

/*
 * Does a backend that is not healthy count as healthy again? It has answered, and in the whole suspicion timeout since
 * then no request has waited there, but for what one client may have sent in vain. A backend of a one-way protocol,
 * which an ICMP error made down, is tried by single datagrams (`answered_ns` is when), and counts as healthy where no
 * error has come for so long: a neighbour entry's three probes of a second each fail within it, here or at a router.
 * Pure; both sides call it, because without requests no program runs.
 */
#define HR_TRIAL_NS 4000000000ull
HR_INLINE int hr_has_rested(const volatile struct hr_service_config *config,
                            const volatile struct hr_backend_state *state, __u64 timeout_ns, __u64 now_ns) {
  if (config->profile.request_correlation.pairing == HR_PAIR_ONE_WAY) timeout_ns = HR_TRIAL_NS;
  return !(state->wait_since && state->attested_since) && state->answered_ns &&
         state->answered_ns >= state->health_since_ns && now_ns > state->answered_ns + timeout_ns;
}

/*
 * Map `backend_loads`, index = backend id: what a choice by load needs (bpf/proxy/load.h). The first line is written by
 * each send and answer, the others by measured answers.
 */
#define HR_LOAD_LEVELS 52 /* quarter octaves of requests in flight: up to 16,384 and more */
struct hr_backend_load {
  __s32 in_flight; /* requests that were sent to it, copies at once apart, and that it has not answered, up to their
                      deadline or retention */
  __u32 reported;  /* load that it reported, in 256ths */
  __u64 reported_ns;
  __u64 lost_ns;         /* for how long requests counted as in flight that it never answered, all together */
  __u32 smoothed;        /* its load as new requests saw it lately, in 65,536ths */
  __u16 failing;         /* share of its requests that it left unanswered, or refused, and another backend answered, in
                            65,536ths (impaired.bpf.h) */
  __u16 failing_witness; /* whose the last one was, its low half; 0 = there was none */
  __u64 missing;         /* the wait of a request that another backend has answered and this one not yet; 0 = none */
  __u64 late_ns;         /* for how long such requests were waited for that it answered after all */
  __u64 counted;         /* the last one of them that counted against it; 0 = its answer has come since */
  __u32 counted_share;   /* for so much of `failing` */
  __u32 missed;          /* how many in a row it never answered; while it is impaired: probes in silence */
  __u32 median[HR_LOAD_LEVELS];  /* of answer times, by requests in flight when the answer came; in units of 1,024 ns, 0
                                    = none */
  __u32 samples[HR_LOAD_LEVELS]; /* how many answers; wraps */
  __u64 pad2[4];
};
HR_STATIC_ASSERT(sizeof(struct hr_backend_load) == 512, "hr_backend_load is eight cache lines");

/*
 * Sends that answers pay for: each is owed, and at most so many are owed at once, so they become few where nothing is
 * answered. They begin with nothing owed. Once no more may be owed, time pays too (HR_DEBT_TICK_SHIFT): a request that
 * is not sent again gets no answer that would pay.
 *
 * Retries, the attempts that negative replies cause: an answer pays for as many as a request may have, and the answer
 * to a retry for eight times as many. So a backend that refuses is masked for as long as another answers one in eight,
 * and where all refuse, clients get their refusals and the backends 60 requests a second more than without a proxy.
 * Copies, the second sends to idle backends: an answer pays for one.
 *
 * Failovers, the copies around backends that are not healthy (ADR 54): the copy pays for itself if it is of use
 * (hr_was_of_use). An answer from elsewhere pays for a 64th of one, which is the unit. So a backend that stalls is
 * masked for as long as others answer, and where all are overloaded their load does not grow, however often each falls
 * silent.
 */
enum hr_debt { HR_DEBT_RETRIES = 0, HR_DEBT_COPIES = 1, HR_DEBT_FAILOVERS = 2, HR_DEBTS = 3 };
#define HR_RETRIES_MAX 100
#define HR_RETRY_PAYS_FOR 8
#define HR_COPIES_MAX 1024
#define HR_FAILOVER_PARTS 64
#define HR_FAILOVERS_MAX 256
/* In each 16.8 ms that no more may be owed, time pays for one retry, one copy and a 16th of a failover: for 60, 60
 * and 3.7 in a second. */
#define HR_DEBT_TICK_SHIFT 24
#define HR_FAILOVER_PARTS_PAID (HR_FAILOVER_PARTS / 16)

/* Map `service_states`, index = service id. */
struct hr_service_state {
  __s64 budget_micros;     /* tokens in the bucket, in millionths of a hedge */
  __u64 pushback_until_ns; /* until then a backend's pushback holds; 0 = there was none */
  __u64 pushback_ns;       /* earliest time of a hedge after its request came; ~0 = no hedge at all */
  __u32 explored;          /* requests sent while a backend is preferred: one in HR_EXPLORE_ONE_IN goes to the leader */
  __u32 compared; /* choices among the backends: one in HR_EXPLORE_ONE_IN asks the one that was heard least lately */
  __u64 held;     /* requests and parked copies of this service that are counted (bpf/proxy/share.bpf.h) */
  __u64 mixed_ns; /* when a request last came from another witness than the one before it; 0 = never */
  __u16 last_witness; /* the last request's, its low half; 0 = there was none */
  __u16 copied; /* share of the last requests that left with a copy at once, in 65,536ths, of which all but one is the
                   most */
  __s32 owed[HR_DEBTS];
  __u32 paid_tick; /* up to when time has paid for what is owed, in ticks of HR_DEBT_TICK_SHIFT; 0 = it never had to */
  __u32 pad[15];
};
HR_STATIC_ASSERT(sizeof(struct hr_service_state) == 128, "two cache lines, of which the second is for what is rare");

/* Requests (32 bits) and parked copies (32 bits), changed by atomic add. */
#define HR_HELD_REQUEST ((__s64)1 << 32)
#define HR_HELD_COPY ((__s64)1)
#define HR_HELD_REQUESTS(held) ((__u32)((held) >> 32))
#define HR_HELD_COPIES(held) ((__u32)(held))

/*
 * Map `clients`, index = a seeded hash of a service and its client (bpf/proxy/share.bpf.h). A client that shares its
 * place with a flooding one by chance (1 in 4,096) shares its part.
 */
#define HR_CLIENT_PARTS 64 /* beyond half of a table a client may hold one part in so many */
struct hr_client {
  __u64 held;
  __s64 budget_micros; /* hedges earned and not paid; negative: it has used what others earned */
  __s32 owed[HR_DEBTS];
  __u32 flows;       /* HR_FLOWS_...: how many it has made anew, and in which tick */
  __u32 connections; /* the same of TCP, those that it has ended taken off */
  __u32 paid_tick;   /* as a service's */
  __u32 witness;     /* a hash of its user or interface; 0 = none */
  __u32 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_client) == 48, "hr_client is 48 bytes");

/*
 * The timing wheel. Fine slots of 2^15 ns (32.8 us), 8192 of them: 268 ms. Coarse slots of 2^23 ns (8.4 ms), 2048 of
 * them: 17 s; what is due later is looked at again then. A slot is a stack of requests: pushed by compare-and-swap
 * from any CPU, taken whole by the clock, so that no pointer can be reused under a reader.
 */
#define HR_FINE_SHIFT 15
#define HR_FINE_SLOTS 8192
#define HR_COARSE_SHIFT 23
#define HR_COARSE_SLOTS 2048
union hr_fine_slot {
  struct {
    __u32 head; /* request index, 0 = empty */
    __u32 live; /* unanswered requests in it: only they make the clock hurry */
  };
  __u64 both; /* a push swaps them as one */
};
/*
 * What holds the clock packet back between laps; see net/tc/clock_qdisc.h. With htb skb->priority names the class (of a
 * fixed period) that it waits in; with fq it is the time to wait itself, in ns.
 */
enum hr_clock_kind {
  HR_CLOCK_HTB = 0,
  HR_CLOCK_FQ = 2,
};
/* Periods of the clock's classes, shortest first. */
#define HR_CLOCK_CLASSES 3
#define HR_CLOCK_CLASS_BASE 10         /* class i is 1:(10 + i) */
#define HR_CLOCK_HANDLE 0x00010000u    /* qdisc 1: ; as skb->priority with htb: not held back */
#define HR_CLOCK_WAIT_MASK 0xfffffff0u /* with fq: its low bits would choose a band */
#define HR_CLOCK_FRAME_BYTES 60
#define HR_CLOCK_TAG_BYTES 6 /* the Ethernet destination */

/* What tests set as the programs' time: `ahead` of the kernel's, or, with the highest bit, all of it, so that it
 * stands. */
#define HR_TEST_STILL (1ull << 63)
#define HR_TEST_TIME(now_ns, ahead) ((ahead)&HR_TEST_STILL ? (ahead) & ~HR_TEST_STILL : (now_ns) + (ahead))

/*
 * Grouped by writer and reader, a cache line (pair) each: the lap's own words, words that every splitter reads, words
 * that every splitter writes.
 */
struct hr_wheel {
  __u64 fine_cursor;   /* first fine tick not yet worked off */
  __u64 coarse_cursor; /* first coarse tick not yet worked off */
  __u64 lap_ns;        /* when the lap under way began */
  __u64 laps;
  __u32 list;              /* requests taken from a slot and not yet looked at */
  __u32 busy;              /* a lap is at work */
  __u64 handover_services; /* services whose parked requests are being given to a new leader; 0 = none */
  __u32 handover_cursor;   /* the request to look at next */
  __u32 handover_end;      /* the last one */
  __u32 handover_left;     /* how many may still be sent in this lap */
  __u32 lap_pad[1];
  __u64 lap_pad2[8];

  __u64 last_lap_ns;
  __u64 fine_passed; /* ticks below are worked off, or about to be: a push there is too late for this turn */
  __u64 coarse_passed;
  __u64 kick_ns;  /* when the clock was last set going */
  __u64 kicks;    /* starts from rest */
  __u64 restarts; /* starts because a lap was overdue: the packet was lost */
  __u32 running;  /* 0 = at rest */
  __u32 epoch;    /* a lap with another epoch dies */
  __u32 late;     /* a push came behind the cursor: the next lap goes over the whole wheel */
  __u32 read_pad[1];
  __u64 handover;          /* services whose leader was newly announced, one bit each: the next lap takes them over */
  __u64 shortest_delay_ns; /* of all services now; written by the daemon where delays are adaptive, 0 = as loaded */
  __u64 hedge_until_ns;    /* the daemon's sign of life: past this time nothing new is hedged; 0 = for ever */
  __u64 test_ahead_ns;     /* with test_clock: how far the programs' time is ahead of the kernel's (HR_TEST_TIME) */
  __u64 backends_here;     /* not 0: a backend is on this host, and its answers come by lo. Written by the daemon */
  __u64 read_pad2[3];

  __u64 held;          /* requests and parked copies in use, or kept free by a CPU for itself */
  __u32 requests_made; /* high-water mark of `requests` */
  __u32 pool_made;     /* high-water mark of `pool` */
  __u32 cold_used;     /* references behind the hot sets */
  __u32 write_pad;
  __u64 unreachables_ns; /* up to when the port unreachables that were said have used up the limit (refuse.bpf.h) */
  __u64 write_pad2[12];

  union hr_fine_slot fine[HR_FINE_SLOTS];
  __u32 coarse[HR_COARSE_SLOTS];
};
HR_STATIC_ASSERT(sizeof(struct hr_wheel) == 384 + 8 * HR_FINE_SLOTS + 4 * HR_COARSE_SLOTS, "hr_wheel is packed");

/*
 * Giving parked requests to a newly announced leader is paced: this many in a lap, laps of 100 us meanwhile, so 160,000
 * a second, which is what one client host sends at most. A lap looks at this many requests for them; a table of 131,072
 * is gone through within 26 ms, the few thousand places that are really in use within one or two.
 */
#define HR_HANDOVER_PER_LAP 16
#define HR_HANDOVER_LOOKS 512

/*
 * What skb->mark says on the clock's link (and nowhere else): kind in the top byte. That a packet there is the proxy's
 * own, its Ethernet destination says: hr_load_config.clock_tag, drawn at random for each load. A mark alone is no
 * proof, because a container with the host's network may set any.
 */
#define HR_MARK_KIND(mark) ((mark)&0xff000000u)
#define HR_MARK_VALUE(mark) ((mark)&0x00ffffffu)
#define HR_MARK_LAP 0x48000000u /* value: epoch */
#define HR_MARK_SEND \
  0x49000000u /* a finished copy; value: backend's place (4 bits) | request (20). Sent on as it is. */
#define HR_MARK_HEDGE 0x4a000000u   /* the same, of a hedge. Sent on, and its fire error noted. */
#define HR_MARK_RELEASE 0x4b000000u /* a consumed nack; value: request. Becomes that request's next attempt. */

/*
 * One datagram of a packet that held several, on its way back to the hook where it is judged. Value: the uplink at
 * whose ingress that is. Its Ethernet source holds the frame's destination as it came.
 */
#define HR_MARK_SEGMENT_IN 0x4c000000u
#define HR_MARK_SEGMENT_OUT \
  0x4d000000u /* the same, at its interface's egress. Its Ethernet source holds the client's mark. */

#define HR_MARK_OF_COPY(kind, place, request) ((kind) | (__u32)(place) << 20 | (request))
#define HR_MARK_PLACE(mark) (((mark) >> 20) & (HR_MAX_BACKENDS_PER_SERVICE - 1))
#define HR_MARK_REQUEST(mark) ((mark) & (HR_MAX_REQUESTS - 1))

/*
 * The Ethernet source of a finished copy and of a consumed nack, until the neighbour entry sets it. The mark has no
 * room for the generation, without which a request's entry that is used again meanwhile would be taken for that
 * request's.
 */
struct hr_link_note {
  __u32 due;        /* of a hedge: when it was due */
  __u16 generation; /* its low bits */
};
#define HR_NOTE_DUE_SHIFT 4 /* 16 ns; 32 bits wrap after 68 s, which is longer than a deadline may be */
#define HR_NOTE_DUE(time_ns) ((__u32)((time_ns) >> HR_NOTE_DUE_SHIFT))

/*
 * The payload of a datagram that tests the proxy's own way: from the daemon's socket to a VIP, back at an uplink's
 * ingress as if a backend had sent it, and to the socket. `tag` (hr_load_config.self_test_tag) proves the sender; from
 * the splitter to the reply program the frame bears the clock's tag as its Ethernet destination, so that the host's
 * stack takes it for another host's where that program does not see it.
 */
struct hr_self_test {
  __u64 tag;
  __u64 number; /* which backend's uplink: the place is this modulo HR_MAX_BACKENDS_PER_SERVICE */
};
HR_STATIC_ASSERT(sizeof(struct hr_self_test) == 16, "shorter than any DNS request");

/* Fixed at load, as read-only data of the programs. Interface indices are of the namespace they are attached in. */
struct hr_load_config {
  __u32 proxy_ifindex;
  __u32 clock_out_ifindex; /* carries the qdisc */
  __u32 clock_in_ifindex;  /* its ingress runs the clock */
  __u32 max_requests;
  __u32 max_parked;
  __u32 cold_mask; /* scoreboard sets behind the hot ones, - 1 */
  __u8 proxy_mac[6];
  __u16 clock_kind; /* enum hr_clock_kind */
  __u64 clock_period_ns[HR_CLOCK_CLASSES];
  __u64 hash_seed;    /* random, so that a client cannot choose which keys share a set */
  __u64 min_delay_ns; /* smallest configured delay of all services: bounds how long a lap may be */
  __u16 announce_ports_be[HR_ANNOUNCE_PORTS]; /* where leaders are announced; 0 = unused */
  __u32 test_clock;                           /* 1 = tests set time forward in the wheel (bpf/proxy/time.bpf.h) */
  __u32 flow_part;
  __u64 clock_tag;     /* random; in its first HR_CLOCK_TAG_BYTES a locally administered unicast address, IEEE 802
                          section 8.4 */
  __u64 self_test_tag; /* random. Not the clock's: a datagram that goes astray shows it to others */
  __u32 free_batch[HR_FREE_LISTS]; /* so many free indices are exchanged at once, 1 to HR_FREE_BATCH */
  __u32 connection_part;
  __u32 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_load_config) == 120, "hr_load_config is 120 bytes: new fields go to its end");

/*
 * Map `leaders`, index = service id. The lock comes first; the struct is declared with it on the BPF side. Both are one
 * cache line.
 */
struct hr_leader_view {
  __u64 cluster_epoch;
  __u64 term;
  __u64 sequence;
  __u64 updated_ns;   /* when anything here was last written */
  __u64 announced_ns; /* the last announcement that was accepted; 0 = none ever */
  __u64 since_ns;     /* when `leader` was newly announced: parked requests sent before go to it */
  __u8 leader;        /* backend that requests go to: service-local index */
  __u8 published;     /* backend that was published last (at first: the configured primary) */
  __u8 pinned;        /* 1 = an administrator chose `leader` */
  __u8 resigning;     /* 1 = the last announcement was of a leader that is resigning */
  __u32
      holds_ms; /* at `since_ns`: `leader` has lost requests sent to it longer ago (announce_abi.h); 0 = not reported */
  __u32 key_id; /* of the key that sealed the last announcement; 0 = none was accepted */
  __u32 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_leader_view) == 64, "hr_leader_view is 64 bytes");

/* What the control program is given, behind 14 bytes of Ethernet header, and its return values. */
enum hr_control_operation {
  HR_CONTROL_PUBLISH = 1, /* ordered by (cluster_epoch, term, sequence): only a higher one replaces */
  HR_CONTROL_PIN = 2,
  HR_CONTROL_UNPIN = 3,
  HR_CONTROL_CONFIGURE = 4, /* another configuration is published: the leader is one of its places */
};
struct hr_control_request {
  __u32 operation;
  __u32 service;
  __u64 cluster_epoch;
  __u64 term;
  __u64 sequence; /* CONFIGURE: 1 = what was announced is of another cluster, and forgotten */
  __u32 leader;   /* PUBLISH, PIN */
  __u32 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_control_request) == 40, "hr_control_request is 40 bytes");
enum hr_control_result {
  HR_CONTROL_DONE = 100,
  HR_CONTROL_STALE = 101,
  HR_CONTROL_INVALID = 102,
};
