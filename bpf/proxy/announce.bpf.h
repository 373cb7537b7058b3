/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ANNOUNCE: a cluster's leader says that it leads, and the leader map follows with no user space in between. Called by
 * the reply program, which sees every packet of the uplinks and has parsed it already, for UDP to an announce port;
 * with none configured the verifier removes the question.
 *
 * A datagram without this proxy's tag passes untouched, because it may be for another proxy behind this host. A
 * datagram with the tag is consumed, whether it changes anything or not.
 *
 * While a key is changed there are two. An announcement does not name its key, so both are tried: a forgery then costs
 * a second tag, of 13 words. A reload replaces both keys in one element of a map, so a program sees the former ones or
 * the new ones.
 */
#pragma once

#include "bpf/abi/announce_abi.h"
#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/leader.bpf.h"
#include "bpf/proxy/health.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#include <linux/pkt_cls.h>

/*
 * The announcement in hand, out of its packet, what it publishes, and the backend that it names: on the stack they
 * would not fit beside the reply program's own frame. A program is not interrupted by another on its CPU.
 */
struct hr_announcement_in_hand {
  struct hr_announcement announcement;
  struct hr_publication news;
  struct hr_endpoint leader;
};
HR_PER_CPU(announcements, 1, struct hr_announcement_in_hand);

HR_INLINE int hr_is_announce_port(__u16 port_be) {
#pragma unroll
  for (__u32 i = 0; i < HR_ANNOUNCE_PORTS; i++) {
    __u16 awaited_be = load_config.announce_ports_be[i];

    if (awaited_be && awaited_be == port_be) return 1;
  }
  return 0;
}

/* Which keys are valid now, and which of them has sealed it: `news->key_id`, 0 for none. */
HR_INLINE void hr_find_key(const struct hr_cluster *cluster, const struct hr_announcement *announcement,
                           struct hr_publication *news) {
  news->key_id = 0;
  for (__u32 i = 0; i < HR_CLUSTER_KEYS; i++) {
    news->key_ids[i] = cluster->key_ids[i];
    if (!news->key_ids[i] || news->key_id) continue;
    if (hr_siphash_bounded(&cluster->keys[i], announcement, sizeof(*announcement), sizeof(*announcement),
                           HR_SIPHASH_TAG_WORD) == announcement->tag)
      news->key_id = news->key_ids[i];
  }
}

/* Is it an announcement that this proxy's cluster has sealed for it? The reason why not, otherwise. */
HR_INLINE __u32 hr_open_announcement(struct __sk_buff *skb, __u32 offset, __u32 bytes,
                                     struct hr_announcement_in_hand *in) {
  struct hr_announcement *announcement = &in->announcement;
  struct hr_cluster *cluster;
  __u64 cluster_id;

  if (bytes != sizeof(*announcement) || bpf_skb_load_bytes(skb, offset, announcement, sizeof(*announcement)) ||
      announcement->bytes != sizeof(*announcement))
    return HR_REASON_ANNOUNCE_LENGTH;
  if (announcement->version != HR_ANNOUNCEMENT_VERSION) return HR_REASON_ANNOUNCE_VERSION;
  cluster_id = announcement->cluster_id;
  cluster = bpf_map_lookup_elem(&clusters, &cluster_id);
  if (!cluster) return HR_REASON_ANNOUNCE_CLUSTER;
  hr_find_key(cluster, announcement, &in->news);
  if (!in->news.key_id) return HR_REASON_ANNOUNCE_TAG;
  return announcement->cluster_epoch == cluster->epoch ? HR_REASON_NONE : HR_REASON_ANNOUNCE_EPOCH;
}

/* The backend that an announcement names, if its service belongs to the announcing cluster. */
HR_INLINE struct hr_backend *hr_announced_backend(struct hr_announcement_in_hand *in, __u32 *backend_id) {
  const struct hr_announcement *announcement = &in->announcement;
  struct hr_backend *backend;
  struct hr_service_config *config;
  __u32 *found;

  in->leader.address = announcement->leader_address;
  in->leader.port_be = announcement->leader_port_be;
  found = bpf_map_lookup_elem(&backend_ids, &in->leader); /* its padding is never written: zero */
  if (!found) return 0;
  *backend_id = *found;
  backend = bpf_map_lookup_elem(&backends, backend_id);
  if (!backend) return 0;
  config = hr_config_of(hr_published_config(backend->service));
  /* A backend that a reload has removed may still answer earlier requests, but it cannot lead. */
  if (!config || !hr_is_present(config, backend->index)) return 0;
  return config->cluster_id == announcement->cluster_id ? backend : 0;
}

/* What follows from a publication, outside the lock. */
HR_INLINE void hr_follow(struct __sk_buff *skb, __u32 changed, __u32 service_id, __u32 backend_id, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_stats *service_stats = hr_stats_of(service_id);
  struct hr_wheel *wheel = hr_the_wheel();

  if (!state || !wheel) return;
  if (changed & HR_PUBLISHED_ADRIFT) hr_suspect(state, service_stats, now_ns);
  if (changed & HR_PUBLISHED_LEADS) hr_trust(state);
  if (changed & HR_PUBLISHED_CHANGED) hr_count(service_stats, HR_LEADER_CHANGES);
  if (!(changed & HR_PUBLISHED_TERM)) return;
  __sync_fetch_and_or(&wheel->handover, 1ull << (service_id & (HR_MAX_SERVICES - 1)));
  hr_clock_hurry(skb, wheel);
}

/* Applies an opened announcement; returns the reason code. `service_id` is set as soon as it is known. */
HR_INLINE __u32 hr_take_announcement(struct __sk_buff *skb, struct hr_announcement_in_hand *in, __u32 *service_id) {
  const struct hr_announcement *announcement = &in->announcement;
  struct hr_publication *news = &in->news;
  __u32 backend_id = 0;
  struct hr_backend *backend = hr_announced_backend(in, &backend_id);
  struct hr_leader *leader;
  __u32 changed;

  if (!backend) return HR_REASON_ANNOUNCE_ENDPOINT;
  *service_id = backend->service;
  if (announcement->state != HR_ANNOUNCEMENT_LEADING && announcement->state != HR_ANNOUNCEMENT_RESIGNING)
    return HR_REASON_ANNOUNCE_STATE;
  leader = bpf_map_lookup_elem(&leaders, service_id);
  if (!leader) return HR_REASON_ANNOUNCE_ENDPOINT;
  news->cluster_epoch = announcement->cluster_epoch;
  news->term = announcement->term;
  news->sequence = announcement->sequence;
  news->now_ns = hr_now_ns();
  news->holds_ms = announcement->holds_ms;
  news->leader = backend->index & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  news->announced = 1;
  news->resigning = announcement->state == HR_ANNOUNCEMENT_RESIGNING;
  changed = hr_publish_leader(leader, news);
  if (!changed) return HR_REASON_ANNOUNCE_STALE;
  if (changed & HR_PUBLISHED_LEAP) return HR_REASON_ANNOUNCE_TERM;
  hr_follow(skb, changed, *service_id, backend_id, news->now_ns);
  return HR_REASON_ANNOUNCE_ACCEPTED;
}

/*
 * The verdict on a UDP payload that came to an announce port: TC_ACT_UNSPEC for what is not ours, else TC_ACT_SHOT. A
 * global function: verified once, with a stack frame of its own.
 */
HR_GLOBAL int hr_announce(struct __sk_buff *skb, __u32 payload_offset, __u32 payload_bytes) {
  __u32 service_id = HR_MAX_SERVICES;
  __u32 magic = 0, zero = 0, reason;
  struct hr_announcement_in_hand *in = bpf_map_lookup_elem(&announcements, &zero);

  /* Other protocols may use that port number, too. */
  if (!in || payload_bytes < sizeof(magic) || bpf_skb_load_bytes(skb, payload_offset, &magic, sizeof(magic)) ||
      magic != HR_ANNOUNCEMENT_MAGIC)
    return TC_ACT_UNSPEC;
  reason = hr_open_announcement(skb, payload_offset, payload_bytes, in);
  if (!reason) reason = hr_take_announcement(skb, in, &service_id);
  hr_reason(hr_stats_of(service_id), reason);
  return reason >= HR_REASON_ANNOUNCE_ACCEPTED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}
