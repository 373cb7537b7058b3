// SPDX-License-Identifier: Apache-2.0
// What the daemon has told so far: samples, one a second, and events. It joins the answers to one past, also over a
// restart of the daemon, whose own memory then begins anew. docs/dashboard.md describes the data.

const COUNTS = ["requests", "hedges", "won_by_hedge", "won_by_failover", "failover_sends", "losers_dropped",
  "unanswered", "nacked", "passed_through", "extra_sends"];
const TIMES = ["p50_ns", "p99_ns", "p999_ns", "delay_ns"];
const MOST_EVENTS = 500;

// The daemon was exchanged for one whose data this page does not know.
export class OtherVersion extends Error {}

export class Store {
  constructor() {
    this.boot = null;
    this.next = 0;
    this.samples = [];  // {at, seconds, services: Map of name to {requests, ..., p50_ns, ..., sent: {backend: n}, ...}}
    this.events = [];
    this.data = null;
  }

  // Takes an answer to after=this.next. False: it is another daemon's life, and must be asked from its beginning.
  take(data) {
    if (data.version !== 1 || data.kind !== "proxy") throw new OtherVersion();
    if (this.boot !== data.boot) {
      const asked = this.next;
      this.boot = data.boot;
      this.next = 0;
      if (asked !== 0) return false;
    }
    this.data = data;
    this.samples.push(...data.at_ms.map((at, i) => sampleOf(data, at, i)));
    this.samples.splice(0, Math.max(0, this.samples.length - data.history_seconds));
    // With after=0 the same first events come again until there is a sample.
    const fresh = data.events.filter((event) => event.sample > 0 || !this.knows(event));
    this.events.push(...fresh.map((event) => ({ ...event, boot: data.boot })));
    this.events.splice(0, Math.max(0, this.events.length - MOST_EVENTS));
    this.next = data.next;
    return true;
  }

  knows(event) {
    return this.events.some((old) => old.boot === this.boot && old.sample === event.sample && old.text === event.text &&
      old.at_ms === event.at_ms);
  }

  get last() {
    return this.samples.at(-1) ?? null;
  }

  // The samples of the `seconds` that end at `until`, by the daemon's clock.
  recent(seconds, until = this.last?.at) {
    let end = this.samples.length;
    while (end > 0 && this.samples[end - 1].at > until) --end;
    let first = end;
    while (first > 0 && this.samples[first - 1].at > until - seconds * 1000) --first;
    return this.samples.slice(first, end);
  }

  // The sum of a count of a service over the last `seconds`, as a rate; null without samples.
  rate(service, seconds, countOf) {
    const samples = this.recent(seconds);
    const covered = samples.reduce((sum, sample) => sum + sample.seconds, 0);
    return covered > 0 ? total(samples, service, countOf) / covered : null;
  }

  share(service, seconds) {
    const samples = this.recent(seconds);
    const requests = total(samples, service, (s) => s.requests);
    return requests > 0 ? total(samples, service, (s) => s.extra_sends) / requests : null;
  }
}

export const total = (samples, service, countOf) =>
  samples.reduce((sum, sample) => {
    const found = sample.services.get(service);
    return sum + (found ? countOf(found) ?? 0 : 0);
  }, 0);

function sampleOf(data, at, i) {
  const services = new Map();
  for (const service of data.services) {
    const sample = { sent: {}, won: {} };
    for (const name of COUNTS) sample[name] = service[name][i];
    for (const name of TIMES) sample[name] = service[name][i] < 0 ? null : service[name][i];
    for (const backend of service.backends) {
      sample.sent[backend.name] = backend.sent[i];
      sample.won[backend.name] = backend.won[i];
    }
    services.set(service.name, sample);
  }
  return { at, seconds: data.interval_ns[i] / 1e9, services };
}
