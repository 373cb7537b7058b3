// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * STEER: chooses the socket of a group for a datagram, and for a new connection, by the source alone
 * (steer/kernel_group.h). Attached to the group's sockets by SO_ATTACH_REUSEPORT_EBPF, one program for each transport.
 * Runs in softirq, once for a datagram and once for a SYN; and when a listener closes, for each connection that it has
 * not accepted (since 5.14). A usual packet costs one hash, one look-up of the table, a counter and one selection.
 */
#include "bpf/steer/source.bpf.h"

#include <linux/errno.h>

#define HR_TCP_FLAGS_OFFSET 13 /* RFC 9293, section 3.1 */
#define HR_TCP_SYN 0x02
#define HR_TCP_RST 0x04

HR_INLINE int hr_steer_take(struct sk_reuseport_md *ctx, void *sockets, __u32 place) {
  return !bpf_sk_select_reuseport(ctx, sockets, &place, 0);
}

HR_INLINE __u32 hr_steer_place(const struct hr_steer_state *state, __u32 half, __u8 slot) {
  return slot + HR_STEER_SLOTS * (__u32)READ_ONCE(state->generation[half & 1][slot]);
}

HR_INLINE void hr_steer_count_selected(__u32 slot, int is_udp, int is_migrating, __u8 tcp_flags) {
  struct hr_steer_slot_counts *counts = bpf_map_lookup_elem(&steer_slot_counts, &slot);

  if (!counts) return;
  if (is_migrating) counts->migrated++;
  if (is_udp) counts->selected_udp++;
  if (!is_udp && !is_migrating && (tcp_flags & HR_TCP_SYN)) counts->selected_tcp++;
}

HR_INLINE struct hr_steer_counts *hr_steer_all_counts(void) {
  __u32 zero = 0;

  return bpf_map_lookup_elem(&steer_counts, &zero);
}

/*
 * A segment that finds no connection reaches the listener, too: a SYN, the last one of a handshake by cookie, and what
 * comes late for a connection that has ended. A connection is counted by its SYN; all but a reset may make one.
 */
HR_INLINE __u8 hr_steer_tcp_flags(struct sk_reuseport_md *ctx) {
  __u8 flags = 0;

  return bpf_skb_load_bytes(ctx, HR_TCP_FLAGS_OFFSET, &flags, sizeof(flags)) ? HR_TCP_RST : flags;
}

/*
 * Enters the source of a connection that was given to `slot`. Two SYNs of one source may be under way on two CPUs and
 * read the table before and after a change: the first one to enter decides for both. Returns the slot that has the
 * connection.
 */
HR_INLINE __u32 hr_steer_record(struct sk_reuseport_md *ctx, void *sockets, const struct hr_steer_state *state,
                                __u32 half, const struct hr_steer_source *source, __u32 slot) {
  /* An int: before 6.4 a map's function returned one, and the upper half of the helper's result is 0 there, not the
   * sign. */
  const int error = bpf_map_update_elem(&steer_pins, source, &slot, BPF_NOEXIST);
  struct hr_steer_counts *all;
  __u32 *first;

  if (error == -EEXIST) {
    first = bpf_map_lookup_elem(&steer_pins, source);
    if (first && *first != slot && hr_steer_take(ctx, sockets, hr_steer_place(state, half, *first))) return *first;
  } else if (error) {
    all = hr_steer_all_counts();
    if (all) all->pins_full++;
  }
  return slot;
}

HR_INLINE void hr_steer_count_empty(__u32 slot, int is_udp) {
  struct hr_steer_slot_counts *counts = bpf_map_lookup_elem(&steer_slot_counts, &slot);

  if (counts && is_udp) counts->empty_udp++;
  if (counts && !is_udp) counts->empty_tcp++;
}

/*
 * Whether a datagram of the flow came in the last minutes, before the change that lasts. A flow that begins in a change
 * (`changing`) is noted once steer_flows has it, which goes before this until the change is over.
 */
HR_INLINE int hr_steer_heard(struct sk_reuseport_md *ctx, const struct hr_steer_state *state, __u32 changing) {
  const __u32 hash = ctx->hash, tick = READ_ONCE(state->tick);
  __u32 zero = 0;
  struct hr_steer_heard *all = bpf_map_lookup_elem(&steer_heard, &zero);
  __u8 *one, *two;
  int heard;

  if (!all) return 0;
  one = &all->tick[hash % HR_STEER_HEARD];
  two = &all->tick[(hash >> 16) % HR_STEER_HEARD];
  heard =
      *one && *two && ((tick - *one) & 0xff) <= HR_STEER_HEARD_TICKS && ((tick - *two) & 0xff) <= HR_STEER_HEARD_TICKS;
  if (changing && !heard) return 0;
  if (*one != tick) *one = tick;
  if (*two != tick) *two = tick;
  return heard;
}

/*
 * A flow stays where it began, so what opens one is remembered, always: the rest of its handshake meets the same worker
 * although a change comes between. While a change lasts, a flow that began before it is where the former table says:
 * one that was recorded before, and one that was heard before where its worker stays; or, of a stated protocol, each
 * that is not recorded. Of any protocol each other one is recorded in the change, for a second one within it. `slot` is
 * the one that has the source now. Returns whether the datagram was given to another place, whose slot it then is.
 */
HR_INLINE int hr_steer_take_flow(struct sk_reuseport_md *ctx, void *sockets, const struct hr_steer_state *state,
                                 __u32 tables, __u32 bucket, __u8 is_vacant, __u32 *slot) {
  const __u32 other = (tables & HR_STEER_SECOND) ^ HR_STEER_SECOND, changing = tables & HR_STEER_FORMER;
  const __u32 present = hr_steer_place(state, tables, *slot);
  const int heard = steer_config.any && hr_steer_heard(ctx, state, changing), opens = hr_steer_opens(ctx);
  const struct hr_steer_opened *known;
  struct hr_steer_opened opened = {.place = present};
  struct hr_steer_flow flow = {};
  struct hr_steer_counts *all;
  struct hr_steer_entry *found, entry;
  __u32 place = present, index = other * HR_STEER_BUCKETS + bucket;
  int stays = 1;

  if ((!opens && !changing) || !hr_steer_flow_of(ctx, &flow)) return 0;
  opened.at = bpf_ktime_get_ns() >> HR_STEER_AT_SHIFT;
  known = bpf_map_lookup_elem(&steer_flows, &flow);
  if (known && opens && opened.at - known->at >= HR_STEER_OPENING) known = NULL;
  if (known && (known->place & HR_STEER_UNOPENED) && (opens || (int)(known->at - READ_ONCE(state->began)) < 0))
    known = NULL;
  found = bpf_map_lookup_elem(&steer_table, &index);
  if (changing && known && (int)(known->at - READ_ONCE(state->began)) >= 0) {
    place = known->place & ~HR_STEER_UNOPENED;
    if (steer_config.any) hr_steer_heard(ctx, state, 0);
  } else if (changing && found) {
    entry.word = READ_ONCE(found->word);
    if (known || (!opens && (!steer_config.any || (heard && !entry.is_vacant))))
      place = hr_steer_place(state, other, entry.slot);
    else
      stays = 0;
  }
  all = hr_steer_all_counts();
  if (place != present && hr_steer_take(ctx, sockets, place)) {
    if (all) all->kept++;
    *slot = place % HR_STEER_SLOTS;
    return 1;
  }
  if (opens && !(known && place == present)) {
    bpf_map_update_elem(&steer_flows, &flow, &opened, BPF_ANY);
    if (all) all->opened++;
  } else if (!opens && steer_config.any && !is_vacant && (!stays || place != present)) {
    opened.place |= HR_STEER_UNOPENED;
    bpf_map_update_elem(&steer_flows, &flow, &opened, BPF_ANY);
  }
  return 0;
}

HR_INLINE int hr_steer(struct sk_reuseport_md *ctx, void *sockets, int is_udp) {
  struct bpf_sock *migrating = is_udp ? NULL : ctx->migrating_sk;
  struct hr_steer_counts *all;
  struct hr_steer_source source;
  struct hr_steer_entry *found, entry;
  struct hr_steer_state *state;
  __u32 zero = 0, bucket, index, tables, slot, *pin = NULL;
  __u8 tcp_flags = 0;

  if (!hr_steer_source_of(ctx, is_udp, migrating, &source)) {
    all = hr_steer_all_counts();
    if (all) all->unreadable++;
    return SK_DROP;
  }
  if (!is_udp && !migrating) tcp_flags = hr_steer_tcp_flags(ctx);
  bucket = hr_steer_bucket_of(&source);
  state = bpf_map_lookup_elem(&steer_state, &zero);
  if (!state) return SK_DROP; /* never: it is an array, as the table is, and the indices are within them */
  tables = READ_ONCE(state->tables);
  index = (tables & HR_STEER_SECOND) * HR_STEER_BUCKETS + bucket;
  found = bpf_map_lookup_elem(&steer_table, &index);
  if (!found) return SK_DROP;

  /* A pin to a slot that is gone binds nothing: its connections are gone, too. */
  if (READ_ONCE(state->has_pins)) pin = bpf_map_lookup_elem(&steer_pins, &source);
  entry.word = READ_ONCE(found->word);
  slot = pin ? *pin : entry.slot;
  if (is_udp && steer_config.openers &&
      hr_steer_take_flow(ctx, sockets, state, tables, bucket, entry.is_vacant, &slot)) {
    hr_steer_count_selected(slot, 1, 0, 0);
    return SK_PASS;
  }
  if (pin && hr_steer_take(ctx, sockets, hr_steer_place(state, tables, slot))) {
    all = hr_steer_all_counts();
    if (all) all->pinned++;
    hr_steer_count_selected(slot, is_udp, migrating != NULL, tcp_flags);
    return SK_PASS;
  }

  slot = entry.slot;
  if (entry.is_vacant || !hr_steer_take(ctx, sockets, hr_steer_place(state, tables, slot))) {
    hr_steer_count_empty(slot, is_udp);
    if (!(entry.empty & HR_STEER_OTHER) ||
        !hr_steer_take(ctx, sockets, hr_steer_place(state, tables, entry.other_slot)))
      return entry.empty & HR_STEER_KERNEL ? SK_PASS : SK_DROP; /* PASS without a selection: by the kernel's hash */
    slot = entry.other_slot;
  }
  if (!is_udp && READ_ONCE(state->recording) && !(tcp_flags & HR_TCP_RST))
    slot = hr_steer_record(ctx, sockets, state, tables, &source, slot);
  hr_steer_count_selected(slot, is_udp, migrating != NULL, tcp_flags);
  return SK_PASS;
}

SEC("sk_reuseport")
int hr_steer_udp(struct sk_reuseport_md *ctx) { return hr_steer(ctx, &steer_udp_sockets, 1); }

SEC("sk_reuseport/migrate")
int hr_steer_tcp(struct sk_reuseport_md *ctx) { return hr_steer(ctx, &steer_tcp_sockets, 0); }

char hr_license[] SEC("license") = "Dual BSD/GPL";
