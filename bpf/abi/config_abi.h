/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The configuration of the kernel programs: services, their profiles and their backends. Only hedgerowd writes it: before
 * attaching, and fields that say so also while attached, one aligned word at a time through the mapped array.
 */
#ifndef HEDGEROW_BPF_ABI_CONFIG_ABI_H_
#define HEDGEROW_BPF_ABI_CONFIG_ABI_H_

#include "bpf/abi/base_abi.h"
#include "bpf/abi/siphash_abi.h"

/*
 * Where the correlation bytes stand in a UDP payload. length is 1..HR_CORRELATION_BYTES. The mask covers the bytes in
 * memory order and is 0 beyond length; what it leaves out is no part of the key.
 */
struct hr_field {
  __u16 offset;
  __u16 length;
  __u32 pad;
  __u64 mask[HR_CORRELATION_BYTES / 8];
};
HR_STATIC_ASSERT(sizeof(struct hr_field) == 24, "hr_field is 24 bytes");

/* One byte of a payload, tested as (byte & mask) == value. mask 0 is always true. */
struct hr_byte_rule {
  __u16 offset;
  __u8 mask;
  __u8 value;
};

enum hr_match_flags {
  HR_MATCH_NOT = 1u << 0,      /* holds where the bytes are others, or where the payload ends before them */
  HR_MATCH_AND_NEXT = 1u << 1, /* in a list of alternatives: this one and the next belong together */
};

/* What a request of a line protocol may hold beside its first line, for the copy to be the same one operation. */
enum hr_shape {
  HR_SHAPE_ANY = 0,   /* not looked at */
  HR_SHAPE_LINE = 1,  /* nothing */
  HR_SHAPE_BLOCK = 2, /* a block of as many bytes as the line's last word says, and CR LF */
  HR_SHAPE_BLOCK_BEFORE_LAST = 3, /* as the last word but one says */
};

/* Up to 8 bytes of a payload, tested as (bytes & mask) == value, both in memory order. `bytes` 0 is always true. */
struct hr_match {
  __u16 offset;
  __u8 bytes;
  __u8 flags; /* enum hr_match_flags */
  __u8 shape; /* enum hr_shape; of an operation, at its last match */
  __u8 pad[3];
  __u64 mask;
  __u64 value;
};
HR_STATIC_ASSERT(sizeof(struct hr_match) == 24, "hr_match is 24 bytes");

enum hr_echo {
  HR_ECHO_NONE = 0,         /* a reply proves nothing about the payload it answers */
  HR_ECHO_DNS_QUESTION = 1, /* RFC 1035 section 4.1.2: a reply repeats the question; letters compared caselessly */
  HR_ECHO_BYTES = 2,        /* a reply repeats the bytes of echo_request in echo_reply */
};

#define HR_PROFILE_MATCHES 3
#define HR_NACK_MATCHES 8
#define HR_OPERATION_MATCHES 16

/*
 * A protocol as data: which payloads are requests and replies, what pairs them, what says "not me", what may be sent
 * twice. docs/profiles.md explains it, proxy/profiles/ has the built-in ones.
 */
struct hr_profile {
  struct hr_field request_correlation;
  struct hr_field reply_correlation;
  __u16 request_min_bytes; /* UDP payload */
  __u16 reply_min_bytes;   /* UDP payload */
  __u8 nack_match_count;
  __u8 operation_match_count; /* 0: every request may be duplicated */
  __u8 echo;               /* enum hr_echo */
  __u8 one_datagram;       /* a reply is never more than one datagram */
  struct hr_match request_matches[HR_PROFILE_MATCHES]; /* all must hold, or the packet is an unknown operation */
  struct hr_match reply_matches[HR_PROFILE_MATCHES];   /* all must hold, or the packet is no reply of this protocol */
  struct hr_match nack_matches[HR_NACK_MATCHES];       /* alternatives: any of the first nack_match_count */
  struct hr_match operation_matches[HR_OPERATION_MATCHES]; /* alternatives: what is safe to duplicate */
  struct hr_field echo_request;
  struct hr_field echo_reply;
  __u64 one_way_mask;  /* of the 8 bytes before the first line's end: a request that matches gets no reply; 0 = no rule */
  __u64 one_way_value;
  __u16 line_offset;     /* of the first line, for shapes */
  __u16 sequence_offset; /* of a reply's datagram among those of one answer, from 0; 2 bytes, big-endian */
  __u16 total_offset;    /* how many they are, alike */
  __u8 numbered;         /* the two above exist */
  __u8 hint_bytes;         /* 4, or 0: this protocol's nacks name no leader */
  struct hr_byte_rule hint_rule; /* which nacks name the leader */
  __u16 hint_offset;       /* of the leader's node id in them, little-endian; id 0 = no leader is named */
  __u16 pushback_offset;   /* of 4 bytes about hedging, in replies that hint_rule does not fit; 0: there are none */
};
HR_STATIC_ASSERT(sizeof(struct hr_profile) == 856, "hr_profile is 856 bytes");

/* A reply's pushback, little-endian: 0 is none, all ones forbids hedges, and a value between is a wait in milliseconds. */
#define HR_PUSHBACK_NEVER 0xffffffffu
/* A backend's pushback ends this long after the last reply that carried one, and cannot ask for a longer wait. */
#define HR_PUSHBACK_HOLD_NS 1000000000ull

enum hr_switch {
  HR_SWITCH_BYPASS = 1u << 0,  /* hedging off, traffic flows */
  HR_SWITCH_DRY_RUN = 1u << 1, /* everything is decided and counted, nothing but the request itself is sent */
  HR_SWITCH_RELOADING = 1u << 2, /* for a moment: the profile is being changed, and no splitter may match by it */
};

/* Map `services`, index = service id. Durations in nanoseconds. */
struct hr_service {
  struct hr_address vip;
  __u16 port_be;
  __u8 backend_count; /* places: 1..HR_MAX_BACKENDS_PER_SERVICE; all but those of `absent` are taken */
  __u8 attempts;      /* 1..HR_MAX_ATTEMPTS; 1 = never hedged */
  __u32 switches;     /* enum hr_switch; changes while attached */
  __u64 delay_ns;     /* of requests that come now; changes while attached where it is adaptive */
  __u64 deadline_ns;
  __u64 linger_ns;
  __u64 election_timeout_ns;
  __u64 suspect_min_ns;
  __u64 suspect_max_ns; /* the suspicion timeout is never longer; at least suspect_min_ns */
  __u64 budget_ppm;          /* tokens earned per request, in millionths of a hedge */
  __u64 budget_burst_micros; /* bucket size, in millionths of a hedge */
  __u16 backends[HR_MAX_BACKENDS_PER_SERVICE]; /* service-local index -> backend id */
  struct hr_profile profile;
  __u8 absent;  /* mask of places that are free, or whose backend a reload has removed: no request goes there any more */
  __u8 present; /* how many others there are */
  __u8 pad[6];
  __u64 cluster_id; /* the cluster whose announcements may move the leader; 0 = none */
  __u32 nodes[HR_MAX_BACKENDS_PER_SERVICE]; /* service-local index -> node id in the cluster; 0 = not known */
  __u64 fixed_delay_ns; /* the configured delay: stands in for what is not measured yet */
  __u32 drained;        /* mask of backends that get nothing new while another is there; changes while attached */
  __u32 preferred;      /* backend preferred to the leader: service-local index + 1; 0 = none; changes while attached */
};
HR_STATIC_ASSERT(sizeof(struct hr_service) == 1024, "hr_service is 1024 bytes");

/* Map `clusters`, key = cluster id: the clusters that may announce a leader to this proxy. Several services may share one. */
struct hr_cluster {
  struct hr_siphash_key key; /* this proxy's */
  __u64 epoch; /* the cluster epoch that the administrator accepts */
  __u64 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_cluster) == 32, "hr_cluster is 32 bytes");

/* Map `backends`, index = backend id. */
struct hr_backend {
  struct hr_address address;
  __u16 port_be;
  __u16 service; /* service id */
  __u32 uplink_ifindex;
  __u8 index; /* service-local index */
  __u8 pad[7];
};
HR_STATIC_ASSERT(sizeof(struct hr_backend) == 32, "hr_backend is 32 bytes");

/* Map `backend_tuning`, index = backend id. Written by the daemon's merge of the histograms. */
struct hr_backend_tuning {
  __u64 p95_ns; /* of answers that no pause held back, and of pauses, one sample each (ADR 26); 0 = not known */
};

/*
 * The suspicion timeout: how long a backend may be silent. Three times the p95 of its answer times, which a pause enters as
 * one sample (docs/adr/0026). Before 20 samples it is unknown (0): the fixed delay stands in for it.
 */
HR_INLINE __u64 hr_suspicion_timeout_ns(const volatile struct hr_service *service, __u64 p95_ns) {
  __u64 timeout_ns = 3 * (p95_ns ? p95_ns : service->fixed_delay_ns);

  if (timeout_ns > service->suspect_max_ns) timeout_ns = service->suspect_max_ns;
  return timeout_ns > service->suspect_min_ns ? timeout_ns : service->suspect_min_ns;
}

#endif /* HEDGEROW_BPF_ABI_CONFIG_ABI_H_ */
