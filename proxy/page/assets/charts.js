// SPDX-License-Identifier: Apache-2.0
// The charts of a service: what each one shows, which events are marked, and the cursor that they share.

import { Chart } from "./chart.js";
import { duration, percent, rate, short } from "./format.js";

const LEAST_S = 60;
const SHARE_S = 10;  // a share of one second's few requests would jump

const perSecond = (service, countOf) => (sample) => {
  const found = sample.services.get(service);
  const count = found ? countOf(found) : undefined;
  return count === undefined || sample.seconds <= 0 ? null : count / sample.seconds;
};
const time = (service, name) => (sample) => sample.services.get(service)?.[name] ?? null;

// Extra datagrams per request over the ten seconds that end at each sample.
function slidingShares(samples, service) {
  const shares = new Map();
  let first = 0, extra = 0, requests = 0;
  for (const sample of samples) {
    const found = sample.services.get(service);
    extra += found?.extra_sends ?? 0;
    requests += found?.requests ?? 0;
    for (; samples[first].at <= sample.at - SHARE_S * 1000; ++first) {
      const gone = samples[first].services.get(service);
      extra -= gone?.extra_sends ?? 0;
      requests -= gone?.requests ?? 0;
    }
    shares.set(sample.at, requests > 0 ? extra / requests : null);
  }
  return (sample) => shares.get(sample.at) ?? null;
}

const line = (style, name, value) => ({ style: `s${style}`, name, value });

const CHARTS = [
  {
    id: "answer-times", title: "Answer times", scale: "log", format: duration,
    about: "From request to first answer, of the requests answered in each second.",
    series: ({ service, status }) => [line(1, "p50", time(service, "p50_ns")), line(2, "p99", time(service, "p99_ns")),
      line(3, "p99.9", time(service, "p999_ns")), ...(status.adaptive ? [line(4, "delay", time(service, "delay_ns"))] : [])],
    // An adaptive delay is a line of its own, for it moves.
    reference: ({ status }) => (status.adaptive ? null :
      { value: status.delay_ns, name: `${status.dry_run ? "would be hedged" : "hedged"} after ${short(duration(status.delay_ns))}` }),
  },
  {
    id: "extra-load", title: "Extra load", scale: "linear", least: 0.01, format: percent,
    about: "Datagrams beyond the first of each request over 10 seconds, against the budget for hedges.",
    series: ({ service, samples }) => [line(1, "extra load", slidingShares(samples, service))],
    reference: ({ about }) => ({ value: about.budget_ppm / 1e6, name: `budget ${short(percent(about.budget_ppm / 1e6))}` }),
  },
  {
    id: "outcomes", title: "What became of slow requests", scale: "linear", least: 1, format: rate,
    about: "Each per second. Hedged: the copy was answered first. Failed over: the leader was down or sent a negative reply.",
    series: ({ service }) => [line(1, "hedged", perSecond(service, (s) => s.won_by_hedge)),
      line(4, "failed over", perSecond(service, (s) => s.won_by_failover)),
      line(2, "losers dropped", perSecond(service, (s) => s.losers_dropped)),
      line(3, "unanswered", perSecond(service, (s) => s.unanswered))],
  },
  {
    id: "backends-sent", title: "Datagrams to each backend", scale: "linear", least: 1, format: rate,
    about: "Requests, hedges and failovers sent to it, per second.",
    series: ({ service, about }) => about.backends.map((backend, i) =>
      line(i + 1, backend.name, perSecond(service, (s) => s.sent[backend.name]))),
  },
];

const MARKS = {
  leader: (event) => `→ ${event.to}`,
  start: () => "start",
};

export class Charts {
  constructor(parent, redraw) {
    this.cursor = null;
    const onCursor = (at) => {
      if (at === this.cursor) return;
      this.cursor = at;
      redraw();
    };
    this.charts = CHARTS.map((spec) => ({ spec, chart: new Chart(spec, onCursor) }));
    parent.append(...this.charts.map(({ chart }) => chart.figure));
  }

  // `about` is the service of the data, `status` the same of the status, `now` the daemon's clock at the
  // right end.
  show({ store, about, status, seconds, now }) {
    const service = about.name;
    const samples = store.recent(seconds, now);
    // A daemon that is young has no five minutes to show: what there is takes the room.
    const from = Math.max(now - seconds * 1000, Math.min(samples[0]?.at ?? now, now - LEAST_S * 1000));
    if (this.cursor !== null && this.cursor < from) this.cursor = null;
    const marks = store.events.filter((event) => event.kind in MARKS && (!event.service || event.service === service))
      .map((event) => ({ at: event.at_ms, style: event.kind, name: MARKS[event.kind](event), text: event.text }));
    const view = { service, samples: store.recent(seconds + SHARE_S, now), about, status };
    for (const { spec, chart } of this.charts) {
      chart.show({ samples, from, to: now, marks, cursor: this.cursor, series: spec.series(view),
        reference: spec.reference?.(view) ?? null });
    }
  }
}
