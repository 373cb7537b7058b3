// SPDX-License-Identifier: Apache-2.0
// The groups of `hedgerow steer` on this host: what their supervisors report, and the rates between two reports.

import { byId, element, fillTable, keyed, setText } from "./dom.js";
import { age, bytes, percent, rate, whole } from "./format.js";

const TONES = { serving: "good", drained: "warn", starting: "warn", restarting: "warn", leaving: "warn", silent: "bad", empty: "bad" };
const EMPTY = { reject: "rejects", next: "gives to the next slot", kernel: "leaves it to the kernel" };
const BUCKETS = 1024;

export class Steer {
  constructor() {
    this.data = null;
    this.before = null;
  }

  take(data) {
    if (data.version !== 1) return;
    this.before = this.data;
    this.data = data;
  }

  problems() {
    const silent = (this.data?.silent ?? []).map(({ name, reason }) => `group ${name}: ${reason}`);
    const reported = (this.data?.groups ?? []).flatMap((group) => group.problems.map((text) => `group ${group.name}: ${text}`));
    return [...silent, ...reported];
  }

  // By which a slot's count grew each second; null without an earlier report of the same supervisor.
  rate(group, slot, countOf) {
    const former = this.before?.groups.find((each) => each.name === group.name && each.supervisor_pid === group.supervisor_pid);
    const earlier = former?.slots.find((each) => each.slot === slot.slot);
    const seconds = (this.data.now_ms - (this.before?.now_ms ?? 0)) / 1000;
    return earlier && seconds > 0 ? Math.max(0, countOf(slot) - countOf(earlier)) / seconds : null;
  }
}

const groupText = (group) => `${group.address} (${group.transports.join(", ")}), supervisor ${group.supervisor_pid}` +
  `${group.mode === "adopt" ? ", adopted" : ""}; after ${group.empty_after_seconds} s without a worker a slot ${EMPTY[group.empty] ?? group.empty}` +
  `${group.pinned_sources > 0 ? `; ${whole(group.pinned_sources)} sources stay with their open connections` : ""}`;

const slotState = (slot) => `${slot.state} for ${age(slot.seconds_in_state * 1e9)}${slot.pid > 0 ? `, pid ${slot.pid}` : ""}`;

export function showSteer(steer) {
  const groups = steer.data?.groups ?? [];
  byId("steer").hidden = groups.length === 0;
  keyed(byId("groups"), groups, (group) => group.name,
    () => element("li", {}, element("b"), element("span")), (node, group) => {
      setText(node.firstElementChild, `${group.name} `);
      setText(node.lastElementChild, groupText(group));
    });
  const rows = groups.flatMap((group) => group.slots.map((slot) => ({ group, slot })));
  fillTable(byId("slots").tBodies[0], rows, (row) => `${row.group.name}/${row.slot.slot}`, [
    { label: "Slot", value: ({ group, slot }) => `${groups.length > 1 ? `${group.name} ` : ""}${slot.slot}` },
    { label: "State", value: ({ slot }) => slotState(slot), tone: ({ slot }) => TONES[slot.state] ?? null,
      quiet: ({ slot }) => (slot.last_exit ? `last end: ${slot.last_exit}` : "") },
    { label: "Share", number: true, value: ({ slot }) => percent(slot.buckets / BUCKETS) },
    { label: "Datagrams/s", number: true, value: ({ group, slot }) => rate(steer.rate(group, slot, (s) => s.selected_udp)) },
    { label: "Connections/s", number: true, value: ({ group, slot }) => rate(steer.rate(group, slot, (s) => s.selected_tcp)) },
    { label: "Found empty", number: true, value: ({ slot }) => whole(slot.empty_udp + slot.empty_tcp) },
    { label: "Dropped", number: true, value: ({ slot }) => whole(slot.udp_dropped),
      tone: ({ slot }) => (slot.udp_dropped > 0 ? "warn" : null) },
    { label: "Waiting", number: true, value: ({ slot }) => (slot.tcp_backlog > 0 ? `${bytes(slot.udp_queued_bytes)}, ${whole(slot.tcp_backlog)} connections` : bytes(slot.udp_queued_bytes)) },
    { label: "Restarts", number: true, value: ({ slot }) => whole(slot.restarts) },
  ]);
}
