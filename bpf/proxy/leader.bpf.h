/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Publishing a leader: the one place that changes the leader map, under its lock. Entries are ordered by
 * (cluster_epoch, term, sequence), and only a higher one replaces: whatever is repeated, reordered or replayed changes
 * nothing. Called by the control program (the configured primary) and for announcements.
 *
 * The order ends with the key under which it was made. A removed key may be a thief's, who can have announced any term:
 * from then on the first announcement under a key that is left counts, as the first one ever does.
 */
#pragma once

#include "bpf/abi/announce_abi.h"
#include "bpf/proxy/stats.bpf.h"

struct hr_publication {
  __u64 cluster_epoch;
  __u64 term;
  __u64 sequence;
  __u64 now_ns;
  __u32 leader;                   /* service-local index */
  __u32 holds_ms;                 /* see announce_abi.h */
  __u32 key_ids[HR_CLUSTER_KEYS]; /* announced: of the keys that are valid now */
  __u32 key_id;                   /* announced: of the one that sealed it */
  __u8 announced;                 /* by the cluster itself */
  __u8 resigning;                 /* `leader` leads no longer, or not for long, and no other backend leads yet */
};

/* What a publication has changed. */
#define HR_PUBLISHED 1u         /* anything at all: it was newer */
#define HR_PUBLISHED_LEADS 2u   /* the backend leads, and was not known to: it is to be tried at once */
#define HR_PUBLISHED_TERM 4u    /* the first time that it is announced for this term, and requests go to it */
#define HR_PUBLISHED_CHANGED 8u /* requests go to another backend than before */
#define HR_PUBLISHED_ADRIFT 16u /* requests go to a leader that is resigning */
#define HR_PUBLISHED_LEAP 32u   /* nothing: its term is further on than elections can have come */

/* Is there nothing to be ordered after: no announcement came, or the key of the last one was removed since? */
HR_INLINE int hr_is_first_contact(const struct hr_publication *news, const struct hr_leader_view *view) {
  if (!news->announced) return 0;
  return !view->key_id || (view->key_id != news->key_ids[0] && view->key_id != news->key_ids[1]);
}

HR_INLINE int hr_is_leap(const struct hr_publication *news, const struct hr_leader_view *view) {
  /* Another CPU may have accepted one after `now_ns` was read. */
  __u64 since_ns = news->now_ns > view->announced_ns ? news->now_ns - view->announced_ns : 0;

  if (!news->announced || news->cluster_epoch != view->cluster_epoch || news->term <= view->term) return 0;
  return news->term - view->term > HR_TERM_LEAP_MAX + (since_ns >> HR_TERM_NS_SHIFT);
}

HR_INLINE int hr_is_newer(const struct hr_publication *news, const struct hr_leader_view *view) {
  if (news->cluster_epoch != view->cluster_epoch) return news->cluster_epoch > view->cluster_epoch;
  if (news->term != view->term) return news->term > view->term;
  return news->sequence > view->sequence;
}

/* Requests go to a resigning leader until another is published, because no better backend is known. */
HR_INLINE __u32 hr_note_resigning(struct hr_leader_view *view, const struct hr_publication *news) {
  view->resigning = 1;
  return view->leader == news->leader ? HR_PUBLISHED | HR_PUBLISHED_ADRIFT : HR_PUBLISHED;
}

HR_INLINE __u32 hr_note_leading(struct hr_leader_view *view, const struct hr_publication *news, int new_term) {
  int known = !new_term && view->published == news->leader;
  __u32 changed = HR_PUBLISHED;

  if (news->announced && (!known || view->resigning)) changed |= HR_PUBLISHED_LEADS;
  view->published = news->leader;
  view->resigning = 0;
  if (view->pinned) return changed;
  if (view->leader != news->leader) changed |= HR_PUBLISHED_CHANGED;
  view->leader = news->leader;
  if (news->announced && !known) {
    view->since_ns = news->now_ns;
    view->holds_ms = news->holds_ms;
    changed |= HR_PUBLISHED_TERM;
  }
  return changed;
}

/* HR_PUBLISHED_... of what it changed; 0 when it is not newer. No helper may be called while the lock is held. */
HR_INLINE __u32 hr_publish_leader(struct hr_leader *leader, const struct hr_publication *news) {
  struct hr_leader_view *view = &leader->view;
  __u32 changed = 0;
  int first;

  bpf_spin_lock(&leader->lock);
  first = hr_is_first_contact(news, view);
  if (!first && hr_is_leap(news, view)) {
    changed = HR_PUBLISHED_LEAP;
  } else if (first || hr_is_newer(news, view)) {
    /* Before the first announcement there is no term: the configured primary stands in. */
    int new_term = !view->announced_ns || view->cluster_epoch != news->cluster_epoch || view->term != news->term;

    view->cluster_epoch = news->cluster_epoch;
    view->term = news->term;
    view->sequence = news->sequence;
    view->updated_ns = news->now_ns;
    changed = news->resigning ? hr_note_resigning(view, news) : hr_note_leading(view, news, new_term);
    if (news->announced) {
      view->announced_ns = news->now_ns;
      view->key_id = news->key_id;
    }
  }
  bpf_spin_unlock(&leader->lock);
  return changed;
}
