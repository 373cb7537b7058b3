/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which backend gets a request next. A pure function from a snapshot to a choice: it reads no map, writes nothing, and
 * compiles for both sides. The kernel programs call it through choose.bpf.h, which gathers the snapshot and applies
 * what a choice costs; `hedgerow status` calls it natively to say where the next request goes.
 */
#pragma once

#include "bpf/proxy/load.h"

/* While the target is down, one request in so many is copied to it as a probe, and one after HR_STANDBY_RETRY where
 * requests are seldom. */
#define HR_PROBE_ONE_IN 64
/*
 * While the daemon prefers another backend, one request in so many still goes to the leader first, or nothing would
 * show that it is fast again. Of the choices among standbys, one in so many takes the one that was heard least lately,
 * in place of the fastest: a standby that was slow once would never be asked again. Below one in a hundred, so that a
 * slow backend stays out of the p99.
 */
#define HR_EXPLORE_ONE_IN 128
#define HR_EXPLORE_NEVER 1 /* a tick at which no request does */
/* A down standby gets a probe after this many election timeouts, and again after as many. */
#define HR_STANDBY_RETRY 8

/*
 * The health of a backend, which is healthy to all others, to the client that waits there, and whose suspicion timeout
 * ends at `suspect_ns`: SUSPECT for an election timeout, then DOWN for HR_STANDBY_RETRY of them. Not where nothing
 * shows by then that the client is owed an answer: other backends were asked meanwhile.
 */
HR_INLINE __u32 hr_health_by_wait(__u64 wait, __u64 suspect_ns, __u64 election_timeout_ns, __u64 now_ns) {
  if (now_ns <= suspect_ns) return HR_HEALTHY;
  if (now_ns <= suspect_ns + election_timeout_ns) return HR_SUSPECT;
  if (wait & HR_WAIT_UNPROVED) return HR_HEALTHY;
  return now_ns <= suspect_ns + (1 + HR_STANDBY_RETRY) * election_timeout_ns ? HR_DOWN : HR_HEALTHY;
}

/* May a backend that is down be tried again? */
HR_INLINE int hr_is_retry_due(const volatile struct hr_backend_state *state, __u64 election_timeout_ns, __u64 now_ns) {
  return state->health >= HR_DOWN && now_ns >= state->health_since_ns + HR_STANDBY_RETRY * election_timeout_ns;
}

enum hr_choice_why {
  HR_CHOSE_NONE = 0,      /* no backend is left to ask */
  HR_CHOSE_LEADER = 1,    /* the leader, which is healthy */
  HR_CHOSE_PREFERRED = 2, /* the backend that is preferred to it, which is healthy */
  HR_CHOSE_STANDBY = 3,   /* another healthy backend: the target is drained, was asked already, or is not healthy */
  HR_CHOSE_BOTH = 4,   /* a new request, and the backend it would go to is suspect: that backend, and another at once */
  HR_CHOSE_AROUND = 5, /* a new request, and the target is down: a standby */
  HR_CHOSE_PROBE = 6,  /* the same, and the target gets a copy as a probe */
  HR_CHOSE_LAST_RESORT = 7, /* the best of those left, none of which is healthy */
  HR_CHOSE_DRY_RUN = 8,     /* a dry run: the target, where else it would have been BOTH, AROUND or PROBE */
  HR_CHOSE_TEST = 9, /* the place that the request would have gone to: a test of the hedge (bpf/proxy/splitter.bpf.c) */
  HR_CHOSE_IDLE = 10, /* the leader or the preferred backend, and a copy to another, because both are idle */
};

/* Masks and indices are of places within the service. */
struct hr_choice_view {
  __u32 answer_us[HR_MAX_BACKENDS_PER_SERVICE]; /* hr_choice_by_load() of smoothed answer times, or
                                                   hr_choice_least_heard() */
  __u32 explore_tick;                           /* requests so far that had a preferred backend */
  __u32 probe_tick;                             /* requests so far that went around the target */
  __u8 leader;
  __u8 preferred; /* place + 1; 0 = none */
  __u8 present;   /* mask of places that requests may go to */
  __u8 drained;
  __u8 healthy;
  __u8 suspect;     /* neither healthy nor suspect is down */
  __u8 retry_due;   /* of those down: may be probed again */
  __u8 exclude;     /* mask of places that were sent the request already; 0 = it is new */
  __u8 impaired;    /* fails at what others answer: the last of its like that is asked */
  __u8 failing;     /* fails the service's check: impaired, if it is healthy */
  __u8 least_heard; /* 1 = answer_us are hr_choice_least_heard(): the choice explores */
  __u8 shares;      /* 1 = no place leads: what is sent again goes to the best */
  __u8 spent; /* 1 = no copy may leave around a suspect backend: too many that did were of no use (HR_DEBT_FAILOVERS) */
};

struct hr_choice {
  __u8 first;  /* HR_NO_BACKEND: no backend is left to ask */
  __u8 second; /* gets a copy beside it, at once; HR_NO_BACKEND: none does */
  __u8 why;    /* enum hr_choice_why */
  __u8 probe;  /* 1 = the copy is a probe of a down backend: free, no attempt, and no request waits for its answer */
};

/* Of a choice that explores, in place of an answer time: the longer a backend has not been heard, the lower. In units
 * of 2^20 ns. */
HR_INLINE __u32 hr_choice_least_heard(__u64 last_receive_ns, __u64 now_ns) {
  const __u64 age = (now_ns - last_receive_ns) >> 20;

  return ~(age > 0xfffffffe ? 0xfffffffe : (__u32)age);
}

/*
 * In place of an answer time: the hot-cold rule of Prequal (section 3). The backends whose load is not full come first,
 * by answer time; the others by load.
 */
#define HR_CHOICE_HOT 0x80000000u
HR_INLINE __u32 hr_choice_by_load(__u32 load, __u64 answer_ns) {
  const __u64 answer_us = answer_ns >> 10;

  if (load >= HR_LOAD_FULL) return HR_CHOICE_HOT | (load < HR_CHOICE_HOT ? load : HR_CHOICE_HOT - 2);
  return answer_us < HR_CHOICE_HOT ? (__u32)answer_us : HR_CHOICE_HOT - 1;
}

/*
 * In place of an answer time, of a request that shares decide (`prefer: each`, `source`): the backend of the lowest
 * cost gets it. Weighted rendezvous hashing (Schindelhauer and Schomaker, "Weighted Distributed Hash Tables", 2005): a
 * cost is -log2 of a hash of key and backend, divided by the weight, so a backend that goes moves only its own. The
 * logarithm is within 0.01, and without branches, as hr_choice_lowest().
 */
HR_INLINE __u32 hr_share_cost(__u32 key, __u32 backend_id, __u32 inverse_weight) {
  __u64 hash = (key ^ (backend_id + 1) * 0x9e3779b1u) * 0xbf58476d1ce4e5b9ull, rest, step, exponent, fraction;

  hash = (hash ^ hash >> 29) * 0x94d049bb133111ebull >> 32 | 1;
  exponent = hr_log2(hash);
  fraction = (hash << (31 - exponent) & 0x7fffffff) >> 15;
  /* log2(1 + f) is nearly f + f (1 - f) (0.279 + 0.164 (1 - f)), whose slopes at both ends are right. */
  step = 65536 - fraction;
  fraction += (fraction * step >> 16) * (18265 + (step * 10748 >> 16)) >> 16;
  rest = (32ull << 16) - (exponent << 16) - fraction;
  return inverse_weight ? (__u32)(rest * inverse_weight >> 6) : HR_CHOICE_HOT - 1;
}

/* The place of `mask`, which is not empty, whose cost is the lowest. */
HR_INLINE __u32 hr_share_place(const struct hr_service_config *config, __u32 mask, __u32 key) {
  __u64 best = ~0ull;

  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    __u64 cost = (__u64)hr_share_cost(key, config->backends[i], config->inverse_weights[i]) << 8 | i;

    if ((mask >> i & 1) && cost < best) best = cost;
  }
  return (__u32)best & (HR_MAX_BACKENDS_PER_SERVICE - 1);
}

/* What of `mask` is in `wanted`, or all of it where nothing is. */
HR_INLINE __u32 hr_choice_narrow(__u32 mask, __u32 wanted) { return mask & wanted ? mask & wanted : mask; }

/*
 * The lowest place of a mask that is not empty: the number of bits below its lowest one. clang 14 has no count of
 * trailing zeros for BPF. Without branches, because the verifier would walk all that follows once for each place that
 * they tell apart.
 */
HR_INLINE __u32 hr_choice_lowest(__u32 mask) {
  __u32 below = ~mask & (mask - 1) & 0xff;

  below -= below >> 1 & 0x55;
  below = (below & 0x33) + (below >> 2 & 0x33);
  return (below + (below >> 4)) & 0x0f;
}

/*
 * The place that leads. In the moment in which a reload has published a configuration without the leader, and has not
 * moved the leader yet, it is the first place that is present and not drained.
 */
HR_INLINE __u32 hr_choice_leader(__u32 leader, __u32 present, __u32 drained) {
  if (!present || (present >> (leader & (HR_MAX_BACKENDS_PER_SERVICE - 1)) & 1)) return leader;
  return hr_choice_lowest(hr_choice_narrow(present, ~drained));
}

/* Where requests go while all is well. A preferred place that is not present counts for nothing. */
HR_INLINE __u32 hr_choice_target(__u32 leader, __u32 preferred, __u32 present, __u32 explore_tick) {
  return (present << 1 >> preferred & 1) && preferred && explore_tick % HR_EXPLORE_ONE_IN ? preferred - 1 : leader;
}

/* The best of `mask`: by health, then not drained, then by answer time. Not inlined: its caller's frame must be small.
 */
static __attribute__((noinline, unused)) __u32 hr_choice_best(const struct hr_choice_view *view, __u32 mask) {
  __u32 best = HR_NO_BACKEND;
  __u64 best_us = ~0ull;

  mask = hr_choice_narrow(mask, view->healthy | view->suspect | view->retry_due);
  mask = hr_choice_narrow(mask, view->healthy | view->suspect);
  mask = hr_choice_narrow(mask, view->healthy);
  mask = hr_choice_narrow(mask, ~(__u32)view->impaired);
  mask = hr_choice_narrow(mask, ~(__u32)view->drained);
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    if (!((mask >> i) & 1) || view->answer_us[i] >= best_us) continue;
    best_us = view->answer_us[i];
    best = i;
  }
  return best;
}

/*
 * A probe of a down standby rides beside a send to a healthy backend and never replaces one. It rides only where the
 * standbys were looked at anyway: a request that goes to its healthy target asks about no other backend, unless the
 * daemon has named unhealthy or untested ones (hr_place_to_probe).
 */
HR_INLINE struct hr_choice hr_choose(const struct hr_choice_view *view) {
  struct hr_choice choice = {.first = HR_NO_BACKEND, .second = HR_NO_BACKEND, .why = HR_CHOSE_NONE, .probe = 0};
  __u32 open = view->present & ~(__u32)view->exclude;
  __u32 leader = hr_choice_leader(view->leader, view->present, view->drained);
  __u32 target =
      hr_choice_target(leader, view->preferred, view->present, view->explore_tick) & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  __u32 other, mask = 0, bit = 1u << target;

  if (!open) return choice;
  choice.first = target;
  if (!(view->shares && view->exclude) && open & view->healthy & ~(__u32)view->drained & bit) {
    choice.why = target == leader ? HR_CHOSE_LEADER : HR_CHOSE_PREFERRED;
    return choice;
  }
  if (view->exclude || !(open & ~(__u32)view->drained & bit)) {
    choice.first = hr_choice_best(view, open);
    bit = 1u << (choice.first & (HR_MAX_BACKENDS_PER_SERVICE - 1));
  }
  choice.why = view->healthy & bit ? HR_CHOSE_STANDBY : HR_CHOSE_LAST_RESORT;
  if (!view->exclude) {
    /* Draining ends where every other backend is down. Where one is suspect, both it and the drained backend are asked.
     */
    mask = view->drained & bit && !view->spent ? open & view->suspect & ~(__u32)view->drained : 0;
    if (mask)
      choice.why = HR_CHOSE_BOTH;
    else if (choice.why == HR_CHOSE_LAST_RESORT && (choice.first == target || view->suspect & bit))
      mask = open & ~bit;
  }
  if (mask) {
    other = hr_choice_best(view, mask);
    choice.second = other;
    if (choice.why == HR_CHOSE_BOTH) {
      choice.second = choice.first;
      choice.first = other;
      return choice;
    }
    if (view->suspect & bit && !view->spent) {
      choice.why = HR_CHOSE_BOTH;
      return choice;
    }
    choice.second = HR_NO_BACKEND;
    /* A suspect or impaired backend counts as down then, if there is a healthy one. */
    if ((view->suspect | view->impaired) & bit && !(view->healthy >> (other & (HR_MAX_BACKENDS_PER_SERVICE - 1)) & 1)) {
      /* A backend that pauses is better than one that fails: both are asked. */
      if (view->impaired & bit && view->suspect >> (other & (HR_MAX_BACKENDS_PER_SERVICE - 1)) & 1 && !view->spent) {
        choice.second = choice.first;
        choice.first = other;
        choice.why = HR_CHOSE_BOTH;
      }
      return choice;
    }
    choice.why = HR_CHOSE_AROUND;
    if (view->probe_tick % HR_PROBE_ONE_IN == 0) {
      choice.second = choice.first;
      choice.why = HR_CHOSE_PROBE;
      choice.probe = 1;
    }
    choice.first = other;
    bit = 1u << (other & (HR_MAX_BACKENDS_PER_SERVICE - 1));
  }
  other = open & view->retry_due & ~(__u32)view->drained;
  if (choice.second == HR_NO_BACKEND && view->healthy & bit && other) {
    choice.second = hr_choice_best(view, other);
    choice.probe = 1;
  }
  return choice;
}

/* Is a new request's first send a failover: around a target that is down, and free of the budget? */
HR_INLINE int hr_choice_goes_around(const struct hr_choice *choice) {
  return choice->why == HR_CHOSE_AROUND || choice->why == HR_CHOSE_PROBE;
}

/* Is the first send's answer time a fair sample? Only where its backend is healthy. */
HR_INLINE int hr_choice_is_fair(const struct hr_choice *choice) {
  return choice->why == HR_CHOSE_LEADER || choice->why == HR_CHOSE_PREFERRED || choice->why == HR_CHOSE_STANDBY;
}

/* The same, and also where a standby serves while the leader is down, because no other send would measure it. */
HR_INLINE int hr_choice_is_measured(const struct hr_choice *choice) {
  return hr_choice_is_fair(choice) || choice->why == HR_CHOSE_AROUND || choice->why == HR_CHOSE_PROBE;
}

/* The backend of a packet that can have no copy, because two answers would look alike. The packet itself is the probe.
 */
HR_INLINE __u32 hr_choice_alone(const struct hr_choice *choice) {
  return choice->why == HR_CHOSE_PROBE ? choice->second : choice->first;
}
