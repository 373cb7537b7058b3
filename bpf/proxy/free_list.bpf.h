/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Free indices of requests and of parked copies: taken by splitters on any CPU, given back by the clock (and by a
 * splitter that could not publish). A lock-free stack with a tagged head, see struct hr_free_list.
 */
#pragma once

#include "bpf/proxy/share.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#define HR_FREE_LIST_TRIES 16

HR_INLINE __u32 *hr_free_link(enum hr_free_list_id id, __u32 index) {
  if (id == HR_FREE_REQUESTS) {
    struct hr_request *request = bpf_map_lookup_elem(&requests, &index);
    return request ? &request->next : 0;
  }
  return bpf_map_lookup_elem(&parked_links, &index);
}

HR_INLINE __u64 hr_free_head(__u64 old, __u32 index) { return (((old >> 32) + 1) << 32) | index; }

/*
 * One try to take the first: its index; 0 when there is none; -1 when another CPU won. The link may be another CPU's by
 * now; then the tag has changed and the swap fails. A request's is read by an atomic, which fetches its line for
 * writing at once: it is filled next.
 */
HR_INLINE __s64 hr_free_try_pop(struct hr_free_list *list, enum hr_free_list_id id) {
  __u64 old = READ_ONCE(list->head);
  __u32 *link = hr_free_link(id, (__u32)old), next;

  if (!(__u32)old || !link) return 0;
  next = id == HR_FREE_REQUESTS ? __sync_fetch_and_add(link, 0) : READ_ONCE(*link);
  return __sync_val_compare_and_swap(&list->head, old, hr_free_head(old, next)) == old ? (__u32)old : -1;
}

/* 0 or -1, as above. */
HR_INLINE int hr_free_try_push(struct hr_free_list *list, __u32 *link, __u32 index) {
  __u64 old = READ_ONCE(list->head);

  WRITE_ONCE(*link, (__u32)old);
  return __sync_val_compare_and_swap(&list->head, old, hr_free_head(old, index)) == old ? 0 : -1;
}

/*
 * Further tries, after another CPU has won the first. Global functions, like those of the wheel: rare, and clang
 * unrolls their loops, of which the verifier would walk each copy on every path of the caller.
 */
HR_GLOBAL __u32 hr_free_pop_again(__u32 id) {
  struct hr_free_list *list = bpf_map_lookup_elem(&free_lists, &id);

  if (!list) return 0;
  for (__u32 i = 1; i < HR_FREE_LIST_TRIES; i++) {
    __s64 index = hr_free_try_pop(list, id);

    if (index >= 0) return index;
  }
  return 0;
}

HR_GLOBAL int hr_free_push_again(__u32 id, __u32 index) {
  struct hr_free_list *list = bpf_map_lookup_elem(&free_lists, &id);
  __u32 *link = hr_free_link(id, index);

  if (!list || !link) return 0;
  for (__u32 i = 1; i < HR_FREE_LIST_TRIES; i++)
    if (!hr_free_try_push(list, link, index)) return 0;
  hr_host_reason(HR_REASON_INDEX_LOST);
  return 0;
}

HR_INLINE __u32 hr_free_pop(enum hr_free_list_id id) {
  __u32 key = id;
  struct hr_free_list *list = bpf_map_lookup_elem(&free_lists, &key);
  __s64 index;

  if (!list) return 0;
  index = hr_free_try_pop(list, id);
  return index < 0 ? hr_free_pop_again(id) : (__u32)index;
}

HR_INLINE void hr_free_push(enum hr_free_list_id id, __u32 index) {
  __u32 key = id;
  struct hr_free_list *list = bpf_map_lookup_elem(&free_lists, &key);
  __u32 *link = hr_free_link(id, index);

  if (list && link && hr_free_try_push(list, link, index)) hr_free_push_again(id, index);
}

/* An index given back earlier, or one never used before; 0 when all are taken. */
HR_INLINE __u32 hr_take_index(enum hr_free_list_id id, __u32 *made, __u32 limit) {
  __u32 index = hr_free_pop(id);

  if (index) return index;
  if (READ_ONCE(*made) >= limit) return 0;
  index = __sync_fetch_and_add(made, 1) + 1;
  if (index <= limit) return index;
  __sync_fetch_and_sub(made, 1); /* another CPU took the last one */
  return 0;
}

/*
 * Gives back the copy of a request that is no longer pending: by the program that has ended it, as the last thing that
 * it does with the request. While `parked` is set the clock does not free the entry, so that it serves no other request
 * under that program's hands.
 */
HR_GLOBAL int hr_give_copy_back(__u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_wheel *wheel = hr_the_wheel();

  if (!request || !wheel || !request->parked) return 0;
  hr_hold(wheel, request->key.service, request->client, -HR_HELD_COPY);
  hr_free_push(HR_FREE_PARKED, request->parked); /* a full barrier */
  WRITE_ONCE(request->parked, 0);
  return 0;
}
