/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the watch over a node's process shares with that process: the watched process and how it died, the node's
 * clock, and the nodes that the clock informs when the leader resigns. Read and written by bpf/node/watch's programs
 * and by cluster/offload/watch. None of it is pinned: each incarnation of a process has its own.
 */
#pragma once

#include "bpf/abi/announce_abi.h"
#include "bpf/abi/base_abi.h"
#include "bpf/abi/peer_abi.h"
#include "bpf/abi/siphash_abi.h"
#include "bpf/node/raft/node_abi.h"

enum hr_watch_cause {
  HR_WATCH_ALIVE = 0,
  HR_WATCH_SIGNAL = 1,     /* a fatal signal is on its way to every thread, or was taken by one */
  HR_WATCH_EXIT = 2,       /* the last thread has ended */
  HR_WATCH_LEASE_OVER = 3, /* never in hr_watch: the lease has passed (R5) */
};

/*
 * Map `node_watch`, one element, no lock: raw tracepoint programs may not touch a map that has one (DESIGN, "A
 * dying leader"). Written by the program that the process runs once, in its own context, which sees the number
 * that the kernel itself uses whatever namespace the process lives in; after that only `dead_ns`, once, by
 * compare-and-swap.
 */
struct hr_watch {
  __u64 incarnation; /* 0: no process is watched */
  __u64 started_ns;  /* when the process began, of CLOCK_BOOTTIME: a number is reused, this is not */
  __u64 dead_ns;     /* CLOCK_MONOTONIC; 0: it lives */
  __u32 tgid;        /* in the first namespace of processes */
  __u32 cause;       /* enum hr_watch_cause; written just after dead_ns */
  __u32 signal;      /* with HR_WATCH_SIGNAL */
  __u32 reserved;
  __u64 loop; /* the kernel's address of the thread that noted all this, which is the loop's */
};
HR_STATIC_ASSERT(sizeof(struct hr_watch) == 48, "hr_watch");

/* Marks of packets on the clock's link, in the upper byte. */
#define HR_WATCH_MARK_KIND(mark) ((mark)&0xff000000u)
#define HR_WATCH_MARK_VALUE(mark) ((mark)&0x00ffffffu)
#define HR_WATCH_MARK_LAP 0x52000000u  /* the clock packet; value: epoch */
#define HR_WATCH_MARK_SEND 0x53000000u /* a finished datagram; value: target */

/* skb->priority that holds a packet back for a lap: class 1:10 of net/clock_qdisc, the first of its periods. */
#define HR_WATCH_LAP_PRIORITY 0x0001000au
#define HR_WATCH_LAP_FRAME_BYTES 60
/* So many laps in a row must find a loop asleep that has been stalled before it counts as one that stands still.
 */
#define HR_WATCH_ASLEEP_LAPS 2u
/* Laps are a millisecond apart; rare maxima of 30 ms were measured on busy machines. */
#define HR_WATCH_OVERDUE_NS 100000000ull
/* A lap that is so late finds a machine that stood still; in one wait for the loop so much is forgiven, and the last
 * gap whole. */
#define HR_WATCH_STANDSTILL_NS 5000000ull
#define HR_WATCH_FORGIVEN_MAX_NS 1000000000ull

/* Map `node_clock`, one element, mapped into the process, which only reads it. */
struct hr_watch_clock {
  __u32 running; /* 0: the clock rests */
  __u32 epoch;   /* a lap of an older one ends */
  __u64 last_lap_ns;
  __u64 laps;
  __u64 kicks;         /* times that it was set going ... */
  __u64 rests;         /* ... and that it went to rest */
  __u64 stale;         /* packets on its link that are not its own, or of an older epoch */
  __u32 resigned;      /* laps that have resigned, since the process was last well */
  __u32 cause;         /* enum hr_watch_cause: why, the last time */
  __u64 resigned_ns;   /* when the first of those laps was */
  __u64 resigned_term; /* and in which term */
  __u64 resignations;  /* times that `resigned` began to count */
  __u64 resigns;       /* datagrams to peers ... */
  __u64 announcements; /* ... and to proxies */
  __u64 failures;      /* those that the kernel refused */
  __u32 stalled_laps;  /* laps that found a scheduling stall, since the loop last turned ... */
  __u32 asleep;        /* ... and the last so many of those found it asleep */
  __u64 stalls;        /* times that `stalled_laps` began to count */
  __u64 stall_hints;   /* datagrams to peers that say so */
  __u64 stall_hint_ns; /* when the last of them were sent */
  /* At the first lap that saw this lease, hence when the loop last turned: CLOCK_MONOTONIC, and how long its
   * thread had run by then. */
  __u64 lease_until_ns;
  __u64 turned_ns;
  __u64 turned_ran_ns;
  __u64 forgiven_ns; /* of standstills since then: the lease is judged by so much later */
};
HR_STATIC_ASSERT(sizeof(struct hr_watch_clock) == 168, "hr_watch_clock");

/*
 * Map `node_plan`, one element, mapped into the process, which writes it as a sequence lock: `version` is odd while
 * it writes. A plan of another term, or one that is being written, counts as empty: a follower that hears RESIGN then
 * waits for its own election timeout.
 */
struct hr_watch_plan {
  __u64 version;
  __u64 term;
  __u32 successors[HR_PEER_SUCCESSORS]; /* as in hr_peer_resign */
};
HR_STATIC_ASSERT(sizeof(struct hr_watch_plan) == 48, "hr_watch_plan");

#define HR_WATCH_PEERS 8
#define HR_WATCH_PROXIES 16
#define HR_WATCH_TARGETS (HR_WATCH_PEERS + HR_WATCH_PROXIES)

/*
 * Map `node_targets`: peers, then proxies. The process writes an element while its ifindex is 0, and the
 * ifindex last. Addresses of IPv4 are mapped into ::ffff:0:0/96.
 */
struct hr_watch_target {
  struct hr_address address;
  struct hr_address source;
  struct hr_siphash_key key; /* the proxy's; a peer's is the cluster's (map `node_keys`) */
  __u32 ifindex;             /* the link towards it; 0: no node, or it cannot be reached */
  __u16 port_be;
  __u16 source_port_be;
};
HR_STATIC_ASSERT(sizeof(struct hr_watch_target) == 56, "hr_watch_target");

/* Fixed when the programs are loaded. */
struct hr_watch_config {
  __u64 cluster_id;
  __u64 cluster_epoch;
  struct hr_address leader_address; /* what announcements name: where this node serves */
  __u16 leader_port_be;
  __u16 reserved;
  __u32 self; /* node id */
  __u32 clock_out_ifindex;
  __u32 clock_in_ifindex;
  __u32 resigning_laps; /* how often the same is said */
  __u32 reserved2;
  __u64 stall_from_ns;  /* a stall counts from this long after the loop last turned; it is none once the loop has
                           run for as long since */
  __u64 stall_until_ns; /* and until then; not above stall_from_ns: never */
};
