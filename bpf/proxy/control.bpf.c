// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CONTROL: never attached; user space runs it by BPF_PROG_TEST_RUN. It changes the leader map under its lock (a plain
 * update from user space would copy the whole element and undo what an announcement had just decided) and restarts a
 * clock whose packet was lost while no client sends. The frame is 14 bytes of Ethernet header and an
 * hr_control_request.
 */
#include "bpf/proxy/config.bpf.h"
#include "bpf/proxy/free_list.bpf.h"
#include "bpf/proxy/leader.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

HR_INLINE int hr_control_publish(struct hr_leader *leader, const struct hr_control_request *request, __u64 now_ns) {
  struct hr_publication news = {
      .cluster_epoch = request->cluster_epoch,
      .term = request->term,
      .sequence = request->sequence,
      .now_ns = now_ns,
      .leader = request->leader,
  };

  return hr_publish_leader(leader, &news) ? HR_CONTROL_DONE : HR_CONTROL_STALE;
}

/*
 * A pin and an announcement hold as long as the backend that they name is there. Before the first announcement, and
 * when the announced backend is gone, the configured primary leads. Later announcements are still ordered after the
 * earlier ones. No helper may be called while the lock is held.
 */
HR_INLINE int hr_control_configure(struct hr_leader *leader, const struct hr_service_config *config, int forget,
                                   __u64 now_ns) {
  struct hr_leader_view *view = &leader->view;
  __u32 absent = ~(__u32)config->present, primary = config->primary;
  __u32 before;

  bpf_spin_lock(&leader->lock);
  before = view->leader;
  if (forget) {
    view->cluster_epoch = 0;
    view->term = 0;
    view->sequence = 1;
    view->announced_ns = 0;
    view->key_id = 0;
  }
  if ((absent >> (view->leader & (HR_MAX_BACKENDS_PER_SERVICE - 1))) & 1) view->pinned = 0;
  if ((absent >> (view->published & (HR_MAX_BACKENDS_PER_SERVICE - 1))) & 1) view->announced_ns = 0;
  if (!view->announced_ns) {
    view->published = primary;
    view->resigning = 0;
  }
  if (!view->pinned) view->leader = view->published;
  if (view->leader != before) view->updated_ns = now_ns;
  bpf_spin_unlock(&leader->lock);
  return HR_CONTROL_DONE;
}

SEC("tc")
int hr_control(struct __sk_buff *skb) {
  struct hr_control_request request;
  struct hr_service_config *config;
  struct hr_leader *leader;
  __u64 now_ns = hr_now_ns();
  int result = HR_CONTROL_DONE;

  if (bpf_skb_load_bytes(skb, ETH_HLEN, &request, sizeof(request))) return HR_CONTROL_INVALID;
  leader = bpf_map_lookup_elem(&leaders, &request.service);
  config = hr_config_of(hr_published_config(request.service & (HR_MAX_SERVICES - 1)));
  if (!leader || !config) return HR_CONTROL_INVALID;
  if ((request.operation == HR_CONTROL_PUBLISH || request.operation == HR_CONTROL_PIN) &&
      (request.leader >= HR_MAX_BACKENDS_PER_SERVICE || !hr_is_present(config, request.leader)))
    return HR_CONTROL_INVALID;

  if (request.operation == HR_CONTROL_PUBLISH) return hr_control_publish(leader, &request, now_ns);
  if (request.operation == HR_CONTROL_CONFIGURE)
    return hr_control_configure(leader, config, request.sequence != 0, now_ns);
  bpf_spin_lock(&leader->lock);
  if (request.operation == HR_CONTROL_PIN) {
    leader->view.pinned = 1;
    leader->view.leader = request.leader;
    leader->view.updated_ns = now_ns;
  } else if (request.operation == HR_CONTROL_UNPIN) {
    leader->view.pinned = 0;
    leader->view.leader = leader->view.published;
    leader->view.updated_ns = now_ns;
  } else {
    result = HR_CONTROL_INVALID;
  }
  bpf_spin_unlock(&leader->lock);
  return result;
}

/* The daemon runs this once a second, because no other program restarts a clock that lost its packet while no client
 * sends. */
SEC("tc")
int hr_watchdog(struct __sk_buff *skb) {
  struct hr_wheel *wheel = hr_the_wheel();
  __u64 restarts;

  if (!wheel || !hr_is_any_in_use()) return HR_CONTROL_STALE;
  restarts = wheel->restarts + wheel->kicks;
  hr_clock_wake(skb, wheel, hr_now_ns());
  return wheel->restarts + wheel->kicks != restarts ? HR_CONTROL_DONE : HR_CONTROL_STALE;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
