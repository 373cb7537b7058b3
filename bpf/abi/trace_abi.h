/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Single requests through the kernel, for `hedgerow trace`: the filter (written by the daemon for as long as a
 * client listens), and the events that the programs emit. A request is matched once, when the splitter sees it, and
 * carries the tracer's session from then on, so that its later events are emitted too. docs/tracing.md is for users.
 */
#pragma once

#include "bpf/abi/request_abi.h"

/* Numbers are stable: their names are in the output of `hedgerow trace --json`. */
enum hr_trace_kind {
  HR_TRACE_SPLIT = 1,    /* sent to `backend`, a copy parked until due_ns */
  HR_TRACE_PASSED = 2,   /* forwarded untracked to `backend`, for `reason` */
  HR_TRACE_COPY = 3,     /* a second copy at once to `backend`: the leader is suspect, or probed */
  HR_TRACE_DUE = 4,      /* its due time came, and no answer has come */
  HR_TRACE_HEDGE = 5,    /* sent to `backend` when due: a hedge, or with HR_TRACE_FAILOVER around a silent backend */
  HR_TRACE_NO_HEDGE = 6, /* due, but not sent, for `reason` */
  HR_TRACE_RELEASE = 7,  /* a nack became the next attempt, sent to `backend` */
  HR_TRACE_HANDOVER = 8, /* given to `backend`, newly announced as the leader */
  HR_TRACE_ANSWER = 9,   /* a datagram of `backend` given to the client; state NACKED: the last nack */
  HR_TRACE_NACK = 10,    /* a nack from `backend`, dropped */
  HR_TRACE_DROPPED = 11, /* a datagram of `backend` dropped, for `reason`: a loser, mostly */
  HR_TRACE_EXPIRED = 12, /* the deadline passed unanswered */
  HR_TRACE_KINDS = 13,
};

enum hr_trace_flags {
  HR_TRACE_FAILOVER = 1u << 0, /* this send costs no budget */
  HR_TRACE_HINTED = 1u << 1,   /* it goes to the backend that a nack named as the leader */
  HR_TRACE_RELEASED = 1u << 2, /* this nack is on its way to become the next attempt */
  HR_TRACE_ICMP = 1u << 3,     /* this nack is an ICMP "unreachable" */
  HR_TRACE_IDLE = 1u << 4,     /* this copy left with the first send, because both backends were idle */
};

/* One event, in the tracer's ring. The request's own fields are as they were right after it. */
struct hr_trace_event {
  __u64 time_ns;             /* CLOCK_MONOTONIC */
  __u64 request;             /* generation (32 bits) | index: one use of the entry; 0 = untracked */
  struct hr_request_key key; /* `pad` says how many of the correlation bytes the service's key has */
  __u64 sent_ns;             /* when the splitter saw it */
  __u64 due_ns;              /* when the clock looks next */
  __u64 fire_ns;             /* what the last hedge was due at; 0 = none */
  __u32 masks;
  __u16 bytes;  /* of the layer 3 packet that the splitter saw */
  __u8 kind;    /* enum hr_trace_kind */
  __u8 reason;  /* enum hr_reason */
  __u8 backend; /* service-local index, or HR_NO_BACKEND */
  __u8 state;   /* enum hr_request_state */
  __u8 winner;
  __u8 first;
  __u8 attempts;
  __u8 flags;    /* enum hr_trace_flags */
  __u8 sequence; /* sequence number within its request, from 1; a gap means that events were lost */
  __u8 session;  /* of the tracer */
};
HR_STATIC_ASSERT(sizeof(struct hr_trace_event) == 96, "hr_trace_event is 96 bytes");

/* At most this many events of one request are emitted: a reply may have any number of datagrams. */
#define HR_TRACE_EVENTS_PER_REQUEST 64
/* The rate is bounded in windows of 2^30 ns (1.07 s). */
#define HR_TRACE_WINDOW_SHIFT 30

/*
 * What is traced. Events of a request that matches are emitted from the first one at which `slower_ns` have passed, the
 * request was sent to one of `backends`, and, with only_hedged, to a second backend. What came before is in the event's
 * fields.
 */
struct hr_trace_filter {
  struct hr_address client; /* masked */
  struct hr_address client_mask;
  __u64 key[HR_CORRELATION_BYTES / 8]; /* masked; in the order of the key's bytes */
  __u64 key_mask[HR_CORRELATION_BYTES / 8];
  __u64 slower_ns;
  __u32 rate;           /* requests in a window, at most */
  __u16 client_port_be; /* 0 = any */
  __u8 only_hedged;
  __u8 pad;
  __u8 backends[HR_MAX_SERVICES]; /* by service: mask of the backends in question; 0 = not this service */
};
HR_STATIC_ASSERT(sizeof(struct hr_trace_filter) == 144, "hr_trace_filter is 144 bytes");

/*
 * The tracer's element of memory, shared by the daemon and every program. `lease_ns` is the only word that is read
 * without a tracer. The daemon writes it last, renews it while its client listens and clears it; a program that finds
 * it passed clears it too, so that a tracer that died costs nothing from then on.
 */
struct hr_trace {
  __u64 lease_ns; /* CLOCK_MONOTONIC; 0 = no tracer */
  __u32 session;  /* 1 to 255: what this tracer's requests carry */
  __u32 pad;
  struct hr_trace_filter filter;
  __u64 pad2[12];
  /* Written by the programs for a tracer. */
  __u64 window;
  __u32 admitted;      /* requests in this window */
  __u32 matched;       /* not 0: some request is this tracer's; until then no request has events to emit */
  __u64 requests_lost; /* over the rate */
  __u64 events_lost;   /* the ring was full */
  __u64 pad4[12];
};
HR_STATIC_ASSERT(sizeof(struct hr_trace) == 384, "the programs' words have cache lines of their own");

/* What every packet reads, in one cache line: which generation of configurations is published, and the tracer's lease.
 */
struct hr_live {
  __u64 published; /* bpf/proxy/config.bpf.h; written by the daemon alone */
  struct hr_trace trace;
  __u64 crowded_ns[2]; /* up to when an entry of `crowded_flows` may be believed: of UDP, of TCP; 0 = there is none */
};
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_live, trace.lease_ns) == 8, "one cache line");
