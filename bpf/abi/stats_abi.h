/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters, reasons and histograms, kept per CPU by the kernel programs and summed by user space. Numbers are
 * stable: they appear in metrics and dashboards and are never reused. Names stand in proxy/data_plane/names.cc.
 */
#ifndef HEDGEROW_BPF_ABI_STATS_ABI_H_
#define HEDGEROW_BPF_ABI_STATS_ABI_H_

#include "bpf/abi/base_abi.h"

/*
 * The accounting identity, at rest:
 *   requests = won_by_first + won_by_rescue + won_by_failover + nacked + unanswered + superseded + evicted
 *            + passed_through + in_flight (counted from the request map)
 */
enum hr_counter {
  HR_REQUESTS = 0,         /* UDP datagrams to the service; a fragmented one counts once, by its first fragment */
  HR_WON_BY_FIRST = 1,     /* the first send's backend answered first */
  HR_WON_BY_RESCUE = 2,    /* a hedge's backend answered first */
  HR_WON_BY_FAILOVER = 3,  /* a backend reached by steering around a suspect, or by a nack, answered first */
  HR_NACKED = 4,           /* every attempt was refused; the last refusal went to the client */
  HR_UNANSWERED = 5,       /* the deadline passed */
  HR_SUPERSEDED = 6,       /* the client reused the key for another request while this one was pending */
  HR_EVICTED = 7,          /* forgotten by the kernel; 0 as long as the request map is no LRU */
  HR_PASSED_THROUGH = 8,   /* forwarded untracked; the reason is counted beside */
  HR_HEDGES = 9,           /* speculative sends, paid from the budget */
  HR_FAILOVER_SENDS = 10,  /* sends around a suspect or refused backend, unbudgeted; probes included */
  HR_PROBES = 11,          /* of those, copies sent to a silent leader to see whether it is back */
  HR_LOSERS_DROPPED = 12,  /* datagrams of a backend that did not win */
  HR_NACKS_SWALLOWED = 13, /* nacks dropped while an attempt remained; ICMP included */
  HR_STALE_DROPPED = 14,   /* replies still owed to an older request with the same key */
  HR_REPLIES = 15,         /* datagrams given to the client, from the VIP */
  HR_REPLIES_UNTRACKED = 16, /* of those, without a request entry (unhedged request, or linger over) */
  HR_SUSPECTED = 17,       /* times a backend of this service became SUSPECT */
  HR_TCP_PACKETS = 18,     /* both directions */
  HR_LATER_FRAGMENTS = 19, /* both directions; they follow their first fragment */
  HR_PINGS = 20,           /* echo requests answered for the VIP */
  HR_ICMP_TRANSLATED = 21, /* ICMP errors handed to the client in the VIP's name */
  HR_LATE_ANSWERS = 22,    /* first answers that came after the deadline, given to the client */
  HR_HANDED_OVER = 23,     /* of failover_sends, parked requests given to a newly announced leader */
  HR_LEADER_CHANGES = 24,  /* announcements after which requests go to another backend */
  HR_HINTED = 25,          /* attempts that went where a nack had said that the leader is */
  HR_WOULD_HEDGE = 26,     /* dry run: hedges that would have been sent; the budget is played */
  HR_WOULD_FAIL_OVER = 27, /* dry run: requests that would have been steered around a silent or refusing backend */
  HR_PUSHBACKS = 28,       /* replies that asked for later hedges, or for none */
  HR_EXTRA_SENDS = 29,     /* datagrams sent beyond the first of a request: hedges, second copies, probes, handovers */
  HR_COUNTER_COUNT = 32,
};

enum hr_reason {
  HR_REASON_NONE = 0,
  /* Why a request was forwarded untracked (sum = passed_through). */
  HR_REASON_BYPASS = 1,
  HR_REASON_NOT_HEDGED = 2, /* attempts is 1, or there is one backend only */
  HR_REASON_FRAGMENT = 3,
  HR_REASON_GSO = 4,
  HR_REASON_TOO_BIG = 5, /* over HR_PARKED_BYTES */
  HR_REASON_UNKNOWN_OPERATION = 6,
  HR_REASON_RETRANSMISSION = 7,
  HR_REASON_POOL_FULL = 8,
  HR_REASON_REQUESTS_FULL = 9,
  HR_REASON_KEY_BUSY = 10,     /* two packets raced for one key, or its entry was just being removed */
  HR_REASON_IP_OPTIONS = 11,
  HR_REASON_WHEEL_CONTENDED = 12,
  HR_REASON_COPY_FAILED = 13, /* the kernel could not read the packet's bytes */
  HR_REASON_SCOREBOARD_FULL = 14, /* the 8 places that the key's hash allows are taken */
  HR_REASON_TRAILING_BYTES = 15, /* the IP packet is longer than the UDP datagram in it */
  HR_REASON_NO_DAEMON = 16, /* no daemon has given a sign of life for `detach_after`: as under bypass */
  HR_REASON_ONE_WAY = 20, /* nobody answers it (memcached's noreply): a copy would only be a second request */
  /* Why a hedge was not made. */
  HR_REASON_NO_BUDGET = 24,
  HR_REASON_NO_TARGET = 25,      /* every backend was tried */
  HR_REASON_RESCUE_FAILED = 26,  /* the kernel refused to build or send the copy */
  HR_REASON_RELEASE_FAILED = 27, /* a nack could not be turned into a rescue; the clock does it instead */
  HR_REASON_DELAY_LINE_FULL = 28, /* engine qdisc: the queueing discipline took no more, or every htb leaf is in use */
  HR_REASON_PUSHBACK = 29,        /* a backend asked for a later hedge, or for none */
  HR_REASON_DRAINED = 30,         /* nobody but drained backends was left to ask */
  /* Why a packet was dropped. */
  HR_REASON_LOSER = 32,
  HR_REASON_NACK = 33,
  HR_REASON_STALE = 34,
  HR_REASON_LOSER_FRAGMENT = 35,
  HR_REASON_SINK = 36,        /* reached the end of the proxy interface: to a VIP, but to no service */
  HR_REASON_CLOCK_STALE = 37, /* a lap of an older epoch, or a packet on the clock's link that is not ours */
  HR_REASON_LATE = 39,        /* an answer to nothing that waits or lingers: a loser, later than the linger */
  HR_REASON_SEND_FAILED = 38, /* a rewritten packet could not be sent on */
  /* Why a packet was left untouched. */
  HR_REASON_NO_FLOW = 48,           /* from a backend, but to nobody who asked through the proxy */
  HR_REASON_FRAGMENT_NO_FIRST = 49, /* a later fragment whose first was not seen */
  HR_REASON_MALFORMED = 50,
  HR_REASON_NOT_A_REPLY = 51, /* from a backend to a client of ours, but not this profile's reply: passed on */
  /* Why a packet was given to the client without being judged. */
  HR_REASON_MERGED = 52, /* several datagrams of a backend, merged by GRO */
  /* Bounds reached. */
  HR_REASON_FLOW_FAILED = 56,
  HR_REASON_FRAGMENTS_FAILED = 57,
  HR_REASON_CLOCK_KICK_FAILED = 58,
  HR_REASON_INDEX_LOST = 59, /* other CPUs won every try to give an index back; the table is one smaller */
  /* Datagrams that say they are announcements, and are not provably for this proxy: left untouched. */
  HR_REASON_ANNOUNCE_LENGTH = 64,
  HR_REASON_ANNOUNCE_VERSION = 65,
  HR_REASON_ANNOUNCE_CLUSTER = 66, /* of a cluster that no service here belongs to */
  HR_REASON_ANNOUNCE_TAG = 67,     /* another key, or changed on its way */
  /* Announcements that carry this proxy's tag: always consumed (dropped). */
  HR_REASON_ANNOUNCE_ACCEPTED = 68, /* newer than what was known, and believed */
  HR_REASON_ANNOUNCE_EPOCH = 69,    /* a cluster epoch that the administrator has not accepted, or no longer accepts */
  HR_REASON_ANNOUNCE_ENDPOINT = 70, /* the leader's address and port are no backend of a service of that cluster */
  HR_REASON_ANNOUNCE_STATE = 71,    /* neither leading nor resigning */
  HR_REASON_ANNOUNCE_STALE = 72,    /* not newer than what is known: overtaken, repeated or replayed */
  HR_REASON_COUNT = 96,
};

/* Map `stats`, per CPU; index = service id, and HR_MAX_SERVICES for what belongs to no service. */
struct hr_stats {
  __u64 counters[HR_COUNTER_COUNT];
  __u64 reasons[HR_REASON_COUNT];
};
HR_STATIC_ASSERT(sizeof(struct hr_stats) == 1024, "hr_stats is 1024 bytes");

/*
 * Log-linear histogram of durations: unit 64 ns, 16 linear buckets an octave (6.25 % wide), up to 2^29 units
 * (34 s); what is longer lands in the last bucket.
 */
#define HR_HISTOGRAM_UNIT_SHIFT 6
#define HR_HISTOGRAM_SUB_SHIFT 4
#define HR_HISTOGRAM_MAX_EXPONENT 29
#define HR_HISTOGRAM_BUCKETS ((HR_HISTOGRAM_MAX_EXPONENT - HR_HISTOGRAM_SUB_SHIFT + 2) << HR_HISTOGRAM_SUB_SHIFT)

/* Map `backend_stats`, per CPU; index = backend id. */
struct hr_backend_stats {
  __u64 sends; /* datagrams sent to it, copies included */
  __u64 wins;
  __u64 unanswered; /* first sends that it did not answer before their deadline, or their linger when another won */
};

struct hr_histogram {
  __u64 buckets[HR_HISTOGRAM_BUCKETS];
  __u64 sum_ns;
  __u64 max_ns;
};
HR_STATIC_ASSERT(HR_HISTOGRAM_BUCKETS == 432, "432 buckets");

/* Map `service_histograms`, per CPU; index = service id * HR_SERVICE_HISTOGRAMS + kind. */
enum hr_service_histogram {
  HR_HISTOGRAM_LATENCY = 0,    /* request seen by the splitter -> first answer given to the client */
  HR_HISTOGRAM_FIRE_ERROR = 1, /* copy handed to the uplink - due */
  HR_SERVICE_HISTOGRAMS = 2,
};
/* Map `backend_histograms`, per CPU; index = backend id * HR_BACKEND_HISTOGRAMS + kind. */
enum hr_backend_histogram {
  HR_HISTOGRAM_ANSWERS = 0,   /* answer times of first attempts sent while healthy */
  HR_HISTOGRAM_HELD_BACK = 1, /* those of them that a pause held back; recorded after HR_HISTOGRAM_ANSWERS */
  HR_HISTOGRAM_PAUSES = 2,    /* silences longer than suspect_min, one sample each, however many answers they held back */
  HR_BACKEND_HISTOGRAMS = 3,
};

/* Bucket of a duration. Pure; compiled by both sides. */
static inline __attribute__((always_inline)) __u32 hr_histogram_bucket(__u64 duration_ns) {
  __u64 units = duration_ns >> HR_HISTOGRAM_UNIT_SHIFT;
  __u32 exponent = 0;
  __u64 rest = units;

  if (units < (1u << HR_HISTOGRAM_SUB_SHIFT)) return (__u32)units;
  if (units >> (HR_HISTOGRAM_MAX_EXPONENT + 1)) return HR_HISTOGRAM_BUCKETS - 1;
  if (rest >> 16) { rest >>= 16; exponent += 16; }
  if (rest >> 8) { rest >>= 8; exponent += 8; }
  if (rest >> 4) { rest >>= 4; exponent += 4; }
  if (rest >> 2) { rest >>= 2; exponent += 2; }
  if (rest >> 1) exponent += 1;
  return ((exponent - HR_HISTOGRAM_SUB_SHIFT + 1) << HR_HISTOGRAM_SUB_SHIFT) +
         (__u32)((units >> (exponent - HR_HISTOGRAM_SUB_SHIFT)) & ((1u << HR_HISTOGRAM_SUB_SHIFT) - 1));
}

/* Smallest duration that falls into a bucket, in ns. */
static inline __attribute__((always_inline)) __u64 hr_histogram_lower_ns(__u32 bucket) {
  __u32 octave = bucket >> HR_HISTOGRAM_SUB_SHIFT;
  __u64 sub = bucket & ((1u << HR_HISTOGRAM_SUB_SHIFT) - 1);

  if (octave == 0) return sub << HR_HISTOGRAM_UNIT_SHIFT;
  return ((1ull << HR_HISTOGRAM_SUB_SHIFT) + sub) << (octave - 1 + HR_HISTOGRAM_UNIT_SHIFT);
}

#endif /* HEDGEROW_BPF_ABI_STATS_ABI_H_ */
