/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steering of sources to workers: what the SK_REUSEPORT program, the supervisor and `hedgerow steer` share. A group is
 * an address and port with its UDP and TCP sockets; a bucket is what a source hashes to; a slot is one worker's pair of
 * sockets; the table maps buckets to slots. A worker that replaces another one has a pair of its own, the slot's next
 * generation; slot and generation together are the pair's place.
 */
#pragma once

#include "bpf/abi/base_abi.h"
#include "bpf/abi/siphash_abi.h"

/* Raised whenever the bytes of a pinned map change their meaning. A supervisor takes over groups of its own layout. */
#define HR_STEER_LAYOUT 6

#define HR_STEER_BUCKETS 1024
#define HR_STEER_SLOTS 256      /* a byte of an entry; a socket is never moved to a larger array */
#define HR_STEER_GENERATIONS 16 /* pairs of sockets of a slot; generation G is at slot + G * HR_STEER_SLOTS */
#define HR_STEER_PLACES (HR_STEER_SLOTS * HR_STEER_GENERATIONS)
#define HR_STEER_PINS 16384    /* sources that stay with an open connection while their bucket has moved */
#define HR_STEER_DEVICES 65536 /* networks with a device id */
#define HR_STEER_FLOWS 65536   /* flows whose first datagram is remembered; the one unused for longest is forgotten */
#define HR_STEER_OPENERS 5     /* patterns of a protocol's first datagram */
#define HR_STEER_HEARD 65536   /* places of steer_heard; both halves of a flow's hash are one */
#define HR_STEER_HEARD_TICKS 8 /* a flow that was silent for longer counts as a new one */
#define HR_STEER_TICK_S 16

/* What a source is: enum hr_steer_kind, and the 16 bytes that are hashed with it. */
enum hr_steer_kind {
  HR_STEER_IPV4 = 4,   /* the address in the first 4 bytes, the others 0 */
  HR_STEER_IPV6 = 6,   /* cut to ipv6_prefix bits */
  HR_STEER_DEVICE = 1, /* a device id in the first 8 bytes, host order */
  HR_STEER_FIELD = 2,  /* a field of a gateway's datagram, the bytes behind it 0 */
};

struct hr_steer_source {
  __u64 kind;     /* enum hr_steer_kind */
  __u64 words[2]; /* in memory order, as they stand in the packet */
};
HR_STATIC_ASSERT(sizeof(struct hr_steer_source) == 24, "hr_steer_source is 24 bytes");

/* What happens to a packet whose slot is vacant or has no socket. OTHER and KERNEL are bits. */
enum hr_steer_empty {
  HR_STEER_REJECT = 0,          /* as if nothing listened: ICMP port unreachable (UDP), RST (TCP) */
  HR_STEER_OTHER = 2,           /* other_slot takes it, and where that is empty too it is rejected */
  HR_STEER_KERNEL = 4,          /* the kernel chooses among all sockets of the group, those in no slot included */
  HR_STEER_OTHER_OR_KERNEL = 6, /* the kernel chooses where other_slot is empty too */
};

/* A bucket's element of the table. One aligned word, so it changes at once. */
struct hr_steer_entry {
  union {
    struct {
      __u8 slot;
      __u8 empty; /* enum hr_steer_empty */
      __u8 other_slot;
      __u8 is_vacant; /* the slot has no worker: its socket is left alone, and `empty` says what happens */
    };
    __u32 word;
  };
};
HR_STATIC_ASSERT(sizeof(struct hr_steer_entry) == 4, "hr_steer_entry is 4 bytes");

/* Networks of which all addresses are one device, or gateways whose datagrams name it. Key of an LPM trie. */
struct hr_steer_network {
  __u32 prefix_bits; /* of family and address: 32 + the network's bits */
  __u32 family;      /* 4 or 6 */
  __u64 words[2];
};
struct hr_steer_device {
  __u64 id;
  __u32 is_gateway; /* UDP only: the field names the device; id counts where the datagram is too short for it */
  __u32 pad;
};

/* The first 16 bytes of a datagram that opens a session, as they stand in memory. */
struct hr_steer_opener {
  __u64 mask[2];
  __u64 value[2];
};

/* A flow over UDP: the peer's address, as in hr_steer_source, and port. */
struct hr_steer_flow {
  __u64 words[2];
  __u32 family; /* 4 or 6 */
  __u32 port;   /* network order */
};
struct hr_steer_opened {
  __u32 place; /* HR_STEER_UNOPENED: with no datagram that opens a session, so that it counts for one change */
  __u32 at;    /* of the first datagram: CLOCK_MONOTONIC >> HR_STEER_AT_SHIFT */
};
struct hr_steer_heard {
  __u8 tick[HR_STEER_HEARD]; /* 0: never */
};
#define HR_STEER_UNOPENED 0x10000
#define HR_STEER_AT_SHIFT 24 /* 17 ms */
#define HR_STEER_OPENING 600 /* units of `at` in which further datagrams that open are of the same handshake: 10 s */

/* Constants of a group, in .rodata: frozen before the first socket exists. */
struct hr_steer_config {
  __u32 layout;       /* HR_STEER_LAYOUT */
  __u32 ipv6_prefix;  /* 1 to 128 */
  __u32 has_devices;  /* steer_devices is asked */
  __u32 field_offset; /* of the UDP payload, for gateways */
  __u32 field_bytes;  /* 1 to 16; 0: none */
  __u32 openers;      /* 0: datagrams are of no sessions */
  __u32 any;          /* a flow that was heard before a change is a session as well */
  __u32 pad;
  struct hr_siphash_key seed;
  struct hr_steer_opener opener[HR_STEER_OPENERS];
};

/* `tables` of hr_steer_state: which half of steer_table is in force, and whether the other one says where flows are
 * that began before the change. */
#define HR_STEER_SECOND 1
#define HR_STEER_FORMER 2

/* The one element of steer_state. User space alone writes it. */
struct hr_steer_state {
  __u32 has_pins;  /* steer_pins is asked */
  __u32 recording; /* the table is changing: each new connection's source is entered into steer_pins with its slot */
  __u32 tables;
  __u32 began; /* the change that lasts, as `at` of hr_steer_opened */
  __u32 tick;  /* 1 to 255, of HR_STEER_TICK_S each */
  __u32 pad;
  __u8 generation[2][HR_STEER_SLOTS]; /* of each slot's sockets, by half */
};

/* What hr_steer_program_of returns for a classic filter, which has no id. */
#define HR_STEER_CLASSIC_PROGRAM 0xffffffffu

/* What hr_steer_program_of is asked. */
#define HR_STEER_ASK_ID 0
#define HR_STEER_ASK_LENGTH 1
#define HR_STEER_ASK_FIRST 2

/* Per CPU and slot. */
struct hr_steer_slot_counts {
  __u64 selected_udp;
  __u64 selected_tcp; /* what reached a listener: SYNs, and packets of no connection */
  __u64 migrated;     /* connections that came here because their listener closed before it accepted them */
  __u64 empty_udp;    /* the slot was vacant or had no socket */
  __u64 empty_tcp;
};

/* Per CPU, one element. */
struct hr_steer_counts {
  __u64 unreadable; /* no source could be read: rejected */
  __u64 pinned;     /* went by steer_pins, not by the table */
  __u64 pins_full;  /* could not be recorded */
  __u64 opened;     /* flows that were entered into steer_flows */
  __u64 kept;       /* datagrams of flows that stay where they began, though their bucket's sources go elsewhere */
};
