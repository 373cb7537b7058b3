/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What hedgerowd says to the kernel programs about a service, in two structs by how it changes: its configuration,
 * which is published as a whole and immutable while it is (two generations, see bpf/proxy/config.bpf.h), and its
 * policy, words that change one at a time. What the programs themselves keep about it is hr_service_state
 * (request_abi.h).
 */
#pragma once

#include "bpf/abi/base_abi.h"
#include "bpf/abi/siphash_abi.h"

/* What pairs a reply with its request. Of one profile, both directions have the same. */
enum hr_pairing {
  HR_PAIR_BYTES = 0,   /* bytes at a fixed offset */
  HR_PAIR_SOCKET = 1,  /* the client's socket alone: one request of it waits at a time */
  HR_PAIR_ONE_WAY = 2, /* nothing: there are no replies. Each datagram is forwarded once */
  HR_PAIR_FLOW = 3,    /* nothing: all datagrams of a client's socket go to one backend, which keeps state about it */
  HR_PAIR_PATH = 4,    /* bytes behind lengths or BER elements */
  HR_PAIR_TOKENS = 5,  /* values of a text's headers */
};

/*
 * Where the correlation bytes stand in a UDP payload. length is 1..HR_CORRELATION_BYTES; 0 where no bytes pair. The
 * mask covers the bytes in memory order and is 0 beyond length; what it leaves out is no part of the key.
 */
struct hr_field {
  __u16 offset;
  __u16 length;
  __u8 pairing; /* enum hr_pairing */
  __u8 pad[3];
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
  HR_MATCH_AT_MARK = 1u << 2,  /* its offset counts from its path's mark */
};

/* What a request of a line protocol may hold beside its first line, for the copy to be the same one operation. */
enum hr_shape {
  HR_SHAPE_ANY = 0,               /* not looked at */
  HR_SHAPE_LINE = 1,              /* nothing */
  HR_SHAPE_BLOCK = 2,             /* a block of as many bytes as the line's last word says, and CR LF */
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

/* A step of a path, from the payload's first byte to the correlation bytes. */
enum hr_step_kind {
  HR_STEP_SKIP = 0,      /* over `bytes` bytes */
  HR_STEP_LENGTH = 1,    /* over a length of `bytes` (1, 2 or 4) bytes and over as many bytes as it says, plus `add` */
  HR_STEP_BER_SKIP = 2,  /* over an element of BER (ITU-T X.690) */
  HR_STEP_BER_ENTER = 3, /* over its tag and length */
  HR_STEP_BER_VALUE = 4, /* the last step: the element's value is the correlation */
};
struct hr_step {
  __u8 kind; /* enum hr_step_kind */
  __u8 bytes;
  __u8 little_endian;
  __u8 pad;
  __s16 add;
  __u16 pad2;
};
#define HR_PATH_STEPS 8
struct hr_path {
  struct hr_step steps[HR_PATH_STEPS];
  __u8 count;
  __u8 mark; /* matches with HR_MATCH_AT_MARK count from the place after so many steps */
  __u8 pad[6];
};
HR_STATIC_ASSERT(sizeof(struct hr_path) == 72, "hr_path is 72 bytes");

/* A header of a text whose value pairs, or one parameter of that value. Names are in lower case, in memory order. */
#define HR_TOKENS 2
#define HR_TOKEN_NAME_BYTES 16
struct hr_token {
  __u64 name[HR_TOKEN_NAME_BYTES / 8];
  __u64 parameter; /* up to 8 bytes */
  __u8 name_bytes;
  __u8 parameter_bytes; /* 0: the whole value */
  __u8 short_name;      /* another name, of one letter; 0: there is none */
  __u8 pad[5];
};
HR_STATIC_ASSERT(sizeof(struct hr_token) == 32, "hr_token is 32 bytes");

/*
 * A protocol as data: which payloads are requests and replies, what pairs them, what says "not me", what may be sent
 * twice. docs/profiles.md explains it, proxy/profiles/ has the built-in ones. What the splitter reads of every request
 * comes first, then what the reply program reads of every reply (see hr_service_config).
 */
struct hr_profile {
  struct hr_field request_correlation;
  __u16 request_min_bytes;    /* UDP payload */
  __u16 line_offset;          /* of the first line, for shapes */
  __u8 operation_match_count; /* 0: every request may be duplicated */
  __u8 pad[3];
  struct hr_match request_matches[HR_PROFILE_MATCHES]; /* all must hold, or the packet is an unknown operation */

  struct hr_field reply_correlation;
  __u16 reply_min_bytes; /* UDP payload */
  __u16 pushback_offset; /* of 4 bytes about hedging, in replies that hint_rule does not fit; 0: there are none */
  __u8 nack_match_count;
  __u8 echo;                                         /* enum hr_echo */
  __u8 one_datagram;                                 /* a reply is never more than one datagram */
  __u8 numbered;                                     /* sequence_offset and total_offset exist */
  struct hr_match reply_matches[HR_PROFILE_MATCHES]; /* all must hold, or the packet is no reply of this protocol */

  struct hr_match nack_matches[HR_NACK_MATCHES];           /* alternatives: any of the first nack_match_count */
  struct hr_match operation_matches[HR_OPERATION_MATCHES]; /* alternatives: what is safe to duplicate */
  struct hr_field echo_request;
  struct hr_field echo_reply;
  __u64
      one_way_mask; /* of the 8 bytes before the first line's end: a request that matches gets no reply; 0 = no rule */
  __u64 one_way_value;
  __u16 sequence_offset;         /* of a reply's datagram among those of one answer, from 0; 2 bytes, big-endian */
  __u16 total_offset;            /* how many they are, alike */
  struct hr_byte_rule hint_rule; /* which nacks name the leader */
  __u16 hint_offset;             /* of the leader's node id in them, little-endian; id 0 = no leader is named */
  __u8 hint_bytes;               /* 4, or 0: this protocol's nacks name no leader */
  __u8 token_count;              /* HR_PAIR_TOKENS */
  __u8 load_bytes;               /* 1 or 2: replies report their server's load; 0 = they do not */
  __u8 pad2;
  __u16 load_offset;           /* of it, big-endian; all ones are a full load */
  struct hr_path request_path; /* HR_PAIR_PATH */
  struct hr_path reply_path;
  struct hr_token tokens[HR_TOKENS]; /* the same in requests and replies */
};
HR_STATIC_ASSERT(sizeof(struct hr_profile) == 1072, "hr_profile is 1072 bytes");

/* A reply's pushback, little-endian: 0 is none, all ones forbids hedges, and a value between is a wait in milliseconds.
 */
#define HR_PUSHBACK_NEVER 0xffffffffu
/* A backend's pushback ends this long after the last reply that carried one, and cannot ask for a longer wait. */
#define HR_PUSHBACK_HOLD_NS 1000000000ull

/* A network of the VIP's family, as addresses are kept: IPv4 in ::ffff:0:0/96. `address` has no bit that `mask` has
 * not. */
struct hr_network {
  struct hr_address address;
  struct hr_address mask;
};
HR_STATIC_ASSERT(sizeof(struct hr_network) == 32, "hr_network is 32 bytes");

#define HR_MAX_CLIENT_NETWORKS 16

/*
 * Map `configs`, index = HR_CONFIG_ID(generation, service id). Never written while its generation is published or may
 * still be read. Its first three cache lines are what the splitter reads of every request; what the reply program reads
 * of every reply is the first and, in the profile, the fourth and fifth. Durations in nanoseconds.
 */
struct hr_service_config {
  struct hr_address vip;
  __u16 port_be;
  __u8 attempts;   /* 1..HR_MAX_ATTEMPTS; 1 = never hedged */
  __u8 present;    /* mask of places that requests may go to; 0 = the id stands for no service */
  __u8 primary;    /* place of the configured leader */
  __u8 switches;   /* enum hr_switch, as configured; hr_service_policy has what holds */
  __u8 idle_share; /* load up to which a backend is idle, in 256ths: then a second copy leaves with the first; 0 = none
                      do */
  __u8 spreads;    /* enum hr_spread */
  __u64 deadline_ns;
  __u64 retention_ns;
  __u16
      backends[HR_MAX_BACKENDS_PER_SERVICE]; /* place -> backend id, also of a removed backend that may still answer */
  __u64 suspect_min_ns;

  __u64 suspect_max_ns; /* the suspicion timeout is never longer; at least suspect_min_ns */
  __u64 delay_ns;       /* as configured: stands in for what is not measured yet */
  __u32 budget_ppm;     /* tokens earned per request, in millionths of a hedge */
  __u32 budget_burst;   /* bucket size, in hedges */
  struct hr_profile profile;
  __u64 election_timeout_ns;
  __u64 cluster_id;                         /* the cluster whose announcements may move the leader; 0 = none */
  __u32 nodes[HR_MAX_BACKENDS_PER_SERVICE]; /* place -> node id in the cluster; 0 = not known, or not present */
  __u32 request_share; /* requests and parked copies that it may hold even where others hold three quarters */
  __u32 parked_share;
  __u32 client_networks; /* of `clients`: from which this host may forward packets to the VIP */
  __u32 in_place;        /* rules of others serve the VIP as well (docs/adr/0061) */
  __u64 flow_timeout_ns; /* HR_PAIR_FLOW: a client that is silent for longer is a new one */
  struct hr_network clients[HR_MAX_CLIENT_NETWORKS];
  __u16 inverse_weights[HR_MAX_BACKENDS_PER_SERVICE]; /* place -> 65535 / weight; 0 = no share */
  __u64 pad2[4];
};
HR_STATIC_ASSERT(sizeof(struct hr_service_config) == 1792, "hr_service_config is 1792 bytes, 28 cache lines");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_service_config, suspect_max_ns) == 64 &&
                     __builtin_offsetof(struct hr_service_config, profile.reply_correlation) == 192,
                 "what one program reads of every packet stands together");

/*
 * The published generation, in bit 0 of one word: a reload publishes all services with one store. A program reads the
 * word once for each packet, and the clock once for each request that it looks at; whatever that packet calls gets the
 * config id made of it. So no program ever sees two configurations mixed. Outside of a reload both generations are the
 * same.
 */
#define HR_GENERATIONS 2
#define HR_CONFIG_ID(generation, service_id) (((generation)&1) * HR_MAX_SERVICES + (service_id))
#define HR_CONFIG_SERVICE(config_id) ((config_id) & (HR_MAX_SERVICES - 1))
/* Beside a config id: the choice is for a TCP connection, to which a backend's health by its SYNs counts as well. */
#define HR_OF_TCP 0x100u

/* Which backend a new request goes to while all is well (`prefer`). */
enum hr_spread {
  HR_SPREAD_NONE = 0,    /* the leader */
  HR_SPREAD_FASTEST = 1, /* the leader or the preferred one; another while its load is full */
  HR_SPREAD_EACH = 2,    /* each by its weight; another while its load is full */
  HR_SPREAD_SOURCE = 3,  /* each by its weight, and always the same for a client */
};

enum hr_switch {
  HR_SWITCH_BYPASS = 1u << 0,  /* hedging off, traffic flows */
  HR_SWITCH_DRY_RUN = 1u << 1, /* everything is decided and counted, nothing but the request itself is sent */
};

/*
 * Map `policies`, index = service id: what an operator or the daemon changes while programs run, one aligned word at a
 * time. Bits and numbers of places that the configuration does not have mean nothing.
 */
struct hr_service_policy {
  __u32 switches;  /* enum hr_switch */
  __u32 drained;   /* mask of places that get nothing new while another is there */
  __u32 preferred; /* place preferred to the leader, + 1; 0 = none */
  __u32 moved;     /* mask of places whose uplink was another one before moved_ns */
  __u64 delay_ns;  /* of requests that come now; 0 = the id stands for no service */
  __u64 moved_ns;  /* CLOCK_MONOTONIC; what was sent to them earlier may have been lost on an uplink that was down */
  __u64
      unhealthy; /* mask of places, as the daemon last saw them: requests that go elsewhere probe those that are down */
  /*
   * A test of the hedge (`hedgerow check`): the next request from this end is tracked and its first datagram dropped,
   * as if the network had lost it. The program that takes the test clears the time; a test that is older counts for
   * nothing.
   */
  __u64 test_until_ns; /* CLOCK_MONOTONIC; 0 = there is none. Written last */
  __u32 test_client;   /* hr_test_client() of the source address */
  __u16 test_port_be;
  __u16 pad0;
  /*
   * The places to which the host has no route, in the low HR_UNROUTED_PLACES, above them those that fail the service's
   * check, and in the rest of the word until when (CLOCK_MONOTONIC) that is known. The daemon renews it, so that its
   * word does not outlive it.
   */
  __u64 unrouted;
};
HR_STATIC_ASSERT(sizeof(struct hr_service_policy) == 64, "one cache line");
#define HR_UNROUTED_PLACES 0xffull
#define HR_FAILING_SHIFT 8
HR_STATIC_ASSERT(HR_MAX_BACKENDS_PER_SERVICE <= 8, "their mask is a byte");

/* An address in 32 bits, for struct hr_service_policy. */
HR_INLINE __u32 hr_test_client(const struct hr_address *address) {
  return address->words[0] ^ address->words[1] * 3 ^ address->words[2] * 5 ^ address->words[3] * 7;
}

/* A key is changed without a stop: the next one is added here, then the cluster seals with it, then the former one is
 * removed. */
#define HR_CLUSTER_KEYS 2

/* Map `clusters`, key = cluster id: the clusters that may announce a leader to this proxy. Several services may share
 * one. */
struct hr_cluster {
  struct hr_siphash_key keys[HR_CLUSTER_KEYS]; /* this proxy's */
  __u32 key_ids[HR_CLUSTER_KEYS];              /* hr_key_id() of each; 0 = there is no such key */
  __u64 epoch;                                 /* the cluster epoch that the administrator accepts */
};
HR_STATIC_ASSERT(sizeof(struct hr_cluster) == 48, "hr_cluster is 48 bytes");

/* Map `backends`, index = backend id. */
struct hr_backend {
  struct hr_address address;
  __u16 port_be;
  __u16 service; /* service id */
  __u32 uplink_ifindex;
  __u8 index; /* service-local index */
  __u8 pad[3];
  __u32 also_ifindex; /* another interface by which its replies may come: a former uplink, or the source address's; 0 =
                         none */
};
HR_STATIC_ASSERT(sizeof(struct hr_backend) == 32, "hr_backend is 32 bytes");

/*
 * Map `vip_addresses`. Where the host's own rules are for the uplink, the route to the VIP leads by it (docs/adr/0055):
 * packets leave and answers enter there, as those to any other address.
 */
struct hr_vip {
  __u32 service;        /* whose clients may ping it as this host may */
  __u32 uplink_ifindex; /* by which its route leads; 0 = by the proxy interface */
  __u64 pad;
};
HR_STATIC_ASSERT(sizeof(struct hr_vip) == 16, "hr_vip is 16 bytes");

/* Map `own_addresses`: so many of this host's addresses are known by which a packet is its own (docs/adr/0056). */
#define HR_MAX_OWN_ADDRESSES 256

/* Map `backend_tuning`, index = backend id. Written by the daemon's merge of the histograms. */
struct hr_backend_tuning {
  __u64 p95_ns;  /* of answers that no pause held back, and of pauses, one sample each (ADR 26); 0 = not known */
  __u32 slow_at; /* requests in flight at which its answers are slow (ADR 53); 0 = not known */
  __s32 lost;    /* of those in flight, how many it will not answer, because they or their answers were lost */
};

/*
 * The suspicion timeout: how long a backend may be silent. Three times the p95 of its answer times, which a pause
 * enters as one sample (docs/adr/0026). Before 20 samples it is unknown (0): the fixed delay stands in for it.
 */
HR_INLINE __u64 hr_suspicion_timeout_ns(const volatile struct hr_service_config *config, __u64 p95_ns) {
  __u64 timeout_ns = 3 * (p95_ns ? p95_ns : config->delay_ns);

  if (timeout_ns > config->suspect_max_ns) timeout_ns = config->suspect_max_ns;
  return timeout_ns > config->suspect_min_ns ? timeout_ns : config->suspect_min_ns;
}
