// SPDX-License-Identifier: Apache-2.0
// Everything beside the charts: the services at a glance, the figures of one, its backends and reasons, what happened, and
// the machine.

import { byId, element, fillTable, keyed, setAttribute, setText } from "./dom.js";
import { NONE, age, bytes, clock, duration, percent, rate, short, whole } from "./format.js";
import { total } from "./store.js";

const MINUTE_S = 60;
const MOST_EVENTS = 40;

const STATES = {
  healthy: { words: "healthy", tone: "good" },
  suspect: { words: "suspect: both are asked", tone: "warn" },
  impaired: { words: "impaired: standbys are asked", tone: "bad" },
  down: { words: "down: standbys are asked", tone: "bad" },
};
// In a dry run a silent backend is noticed as ever, and no other backend is asked.
function stateOf(word, dryRun) {
  const state = STATES[word] ?? { words: word, tone: null };
  return dryRun && word !== "healthy" ? { words: `${word}: dry run, no other backend is asked`, tone: state.tone } : state;
}

// One client alone waits there in vain: the others' requests are as before.
function toOneClient(backend, state) {
  if (!backend.one_client_health) return state;
  return { words: `${state.words}; ${backend.one_client_health} to one client`, tone: state.tone === "good" ? "warn" : state.tone };
}

// Drained is an operator's wish; what the backend says meanwhile is worth less.
function backendState(backend, status) {
  // Nothing speaks against it, and nothing for it.
  const untested = backend.health === "healthy" && Number(backend.sent) === 0 && !Number(backend.answer_ns?.count);
  if (untested && !backend.drained) return { words: "untested: never asked", tone: null };
  if (!backend.drained) return toOneClient(backend, stateOf(backend.health, status.dry_run));
  const alone = status.requests_to === backend.name;
  return { words: alone ? "drained without effect: no other backend is available" : "drained: gets nothing new", tone: alone ? "bad" : "warn" };
}

// What was switched by hand, in few words.
function switched(status) {
  const drained = status.backends.filter((backend) => backend.drained).map((backend) => backend.name);
  return [status.bypass && "bypassed", status.dry_run && "dry run", drained.length > 0 && `${drained.join(" and ")} drained`]
    .filter(Boolean);
}

function hedgingText(about, status) {
  if (status.bypass) return "hedging is switched off (bypass)";
  if (about.attempts < 2) return "never hedged";
  const after = `after ${short(duration(status.delay_ns))}${status.adaptive ? " (adaptive: it follows the answer times)" : ""}`;
  const hedged = status.dry_run ? `dry run: what would be hedged ${after} is counted, and nothing is sent twice` :
    `hedged ${after}, at most ${about.attempts} sends`;
  return hedged + (status.pushed_back ? "; a backend asks for later hedges, or for none" : "");
}

// Which backend gets the requests, where that is not the leader, and why: in the words of `hedgerow status`.
function requestsToText(status) {
  if (!status.requests_to || !status.leader || status.requests_to === status.leader) return "";
  if (status.requests_to.includes(" ")) return `; requests go to ${status.requests_to}`; // shares
  const leader = status.backends.find((backend) => backend.name === status.leader);
  const why = leader?.drained ? "while the leader is drained"
    : leader && !leader.uplink ? "while this host has no route to the leader"
    : leader && leader.health !== "healthy" ? `while the leader is ${leader.health}`
    : "which answers faster";
  return `; requests go to ${status.requests_to}, ${why}`;
}

const KINDS = {
  forwarded: "sent on without hedging",
  not_hedged: "no copy was sent",
  dropped: "dropped, as it should be",
  untouched: "left alone: not ours",
  unjudged: "given to the client unjudged",
  bound: "a bound was reached",
};

const EVENTS = { leader: "leader", pin: "pin", term: "election", health: "backend", bypass: "bypass", dry_run: "dry run",
  drain: "drain", problem: "problem",
  solved: "solved", restored: "repaired", start: "start" };

const leaderText = (status) => (status.leader ? `${status.leader} (${status.leader_source})` : NONE);

export function showServices(store, statuses, chosen, choose) {
  const rows = statuses.map((status) => ({ status, about: store.data.services.find((s) => s.name === status.name) }));
  byId("overview").hidden = statuses.length < 2;
  fillTable(byId("services").tBodies[0], rows, (row) => row.status.name, [
    { label: "Service", value: (row) => row.status.name,
      update: (button, row) => setAttribute(button, "aria-pressed", row.status.name === chosen) },
    { label: "Leader", value: (row) => leaderText(row.status) },
    { label: "State", value: (row) => [stateOf(row.status.state, row.status.dry_run).words, ...switched(row.status)].join(", "),
      tone: (row) => (switched(row.status).length > 0 ? "warn" : stateOf(row.status.state, row.status.dry_run).tone) },
    { label: "Requests/s", number: true, value: (row) => rate(store.rate(row.status.name, MINUTE_S, (s) => s.requests)) },
    { label: "p99", number: true, value: (row) => duration(row.about?.minute?.p99_ns) },
    { label: "Extra load", number: true, value: (row) => percent(store.share(row.status.name, MINUTE_S)) },
  ], () => {
    const button = element("button", { type: "button" });
    button.addEventListener("click", () => choose(button.textContent));
    return button;
  });
}

export function showService(store, about, status) {
  setText(byId("service-title"), status.name);
  const at = status.vip.includes(":") ? `[${status.vip}]:${status.port}` : `${status.vip}:${status.port}`;
  setText(byId("service-facts"), `${status.profile} at ${at}; ${leaderText(status)} leads, ` +
    `${stateOf(status.state, status.dry_run).words}${requestsToText(status)}; ${hedgingText(about, status)}; given up after ${short(duration(about.deadline_ns))}`);
  showTiles(store, about, status);
}

function showTiles(store, about, status) {
  const minute = store.recent(MINUTE_S);
  const count = (countOf) => total(minute, status.name, countOf);
  const share = store.share(status.name, MINUTE_S);
  const extra = count((s) => s.extra_sends);
  const budget = about.budget_ppm / 1e6;
  const unanswered = count((s) => s.unanswered);
  const tiles = [
    { name: "p50", value: duration(about.minute?.p50_ns), more: "last minute" },
    { name: "p99", value: duration(about.minute?.p99_ns), more: "last minute" },
    { name: "p99.9", value: duration(about.minute?.p999_ns), more: "last minute" },
    { name: "Requests", value: `${rate(store.rate(status.name, MINUTE_S, (s) => s.requests))}/s`,
      more: `${whole(status.in_flight)} waiting now` },
    { name: "Extra load", value: percent(share), more: `${whole(extra)} datagrams; budget ${short(percent(budget))}, ${whole(status.budget_tokens)} saved`,
      tone: share !== null && share > budget + 0.01 ? "warn" : null },
    { name: "Hedged", value: whole(count((s) => s.won_by_hedge)), more: "last minute" },
    { name: "Failed over", value: whole(count((s) => s.won_by_failover)), more: "last minute" },
    { name: "Unanswered", value: whole(unanswered), more: unanswered > 0 ? "! last minute" : "last minute",
      tone: unanswered > 0 ? "bad" : null },
  ];
  if (status.dry_run) {
    tiles.push({ name: "Would hedge", value: whole(status.would_hedge), more: "in all, dry run", tone: "warn" },
      { name: "Would fail over", value: whole(status.would_fail_over), more: "in all, dry run", tone: "warn" });
  }
  keyed(byId("tiles"), tiles, (tile) => tile.name,
    (tile) => element("div", {}, element("dt", {}, tile.name), element("dd", {}, element("span"), element("small"))),
    (node, tile) => {
      setAttribute(node, "class", tile.tone ?? null);
      setText(node.lastElementChild.firstElementChild, tile.value);
      setText(node.lastElementChild.lastElementChild, tile.more);
    });
}

export function showBackends(store, about, status) {
  const rows = status.backends.map((backend) => ({
    backend, minute: about.backends.find((each) => each.name === backend.name)?.minute,
    rate: (what) => rate(store.rate(status.name, MINUTE_S, (s) => s[what][backend.name])),
  }));
  fillTable(byId("backends").tBodies[0], rows, (row) => row.backend.name, [
    { label: "Backend", value: (row) => row.backend.name, quiet: (row) => `${row.backend.address} port ${row.backend.port}` },
    { label: "Role", value: (row) => row.backend.role },
    { label: "State", value: (row) => backendState(row.backend, status).words,
      tone: (row) => backendState(row.backend, status).tone },
    { label: "Sent/s", number: true, value: (row) => row.rate("sent") },
    { label: "Won/s", number: true, value: (row) => row.rate("won") },
    { label: "p50", number: true, value: (row) => duration(row.minute?.p50_ns) },
    { label: "p99", number: true, value: (row) => duration(row.minute?.p99_ns) },
    { label: "Suspect after", number: true, value: (row) => duration(row.backend.suspect_after_ns) },
  ]);
}

export function showReasons(about) {
  const rows = [...about.reasons].sort((a, b) => b.minute - a.minute || b.total - a.total || (a.name < b.name ? -1 : 1));
  byId("reasons").hidden = rows.length === 0;
  byId("no-reasons").hidden = rows.length > 0;
  fillTable(byId("reasons").tBodies[0], rows, (row) => row.name, [
    { label: "Reason", value: (row) => row.name },
    { label: "What was done", value: (row) => KINDS[row.kind] ?? row.kind },
    { label: "Last minute", number: true, value: (row) => whole(row.minute) },
    { label: "In all", number: true, value: (row) => whole(row.total) },
  ]);
}

export function showEvents(store) {
  const events = [...store.events].sort((a, b) => b.at_ms - a.at_ms).slice(0, MOST_EVENTS);
  keyed(byId("events"), events, (event) => `${event.boot}/${event.sample}/${event.at_ms}/${event.service}/${event.text}`,
    (event) => element("li", { "data-kind": event.kind },
      element("time", { datetime: new Date(event.at_ms).toISOString() }, clock(event.at_ms)),
      element("b", {}, EVENTS[event.kind] ?? event.kind),
      element("span", {}, event.service ? `${event.service}: ${event.text}` : event.text)), () => {});
}

export function showMachine(status) {
  const clockText = `${status.clock?.kind}, ${status.clock?.running ? "running" : "at rest"}, ` +
    `${whole(status.clock?.restarts)} restarts, off by ${duration(Math.abs(status.clock?.measured_error_ns))} at the start`;
  const facts = [
    ["Version", `${status.version}, pid ${status.pid}`],
    ["Up for", age(status.uptime_ns)],
    ["Kernel", status.kernel],
    ["Clock", clockText],
    ["Interface", status.interface],
    ["Uplinks", status.uplinks.map((link) => `${link.name} (${link.attach}${link.up ? "" : ", DOWN"})`).join(", ")],
    ["Configuration", status.config_file],
    ["Put back", `${whole(status.routes_restored)} routes, ${whole(status.links_restored)} links`],
    ["Other packets", Object.entries(status.reasons).map(([name, count]) => `${name} ${whole(count)}`).join(", ") || "none"],
  ];
  keyed(byId("facts"), facts.flatMap(([name, value]) => [{ tag: "dt", key: `${name}:`, text: name }, { tag: "dd", key: name, text: value }]),
    (part) => part.key, (part) => element(part.tag), (node, part) => setText(node, part.text));
  const maps = Object.entries(status.maps).map(([name, map]) => ({ name, ...map }));
  fillTable(byId("maps").tBodies[0], maps, (map) => map.name, [
    { label: "Map", value: (map) => map.name },
    { label: "In use", number: true, value: (map) => (map.exact ? whole(map.used) : "not counted"),
      tone: (map) => (map.exact && map.used > 0.9 * map.size ? "bad" : null) },
    { label: "Room for", number: true, value: (map) => whole(map.size) },
    { label: "Memory", number: true, value: (map) => bytes(map.bytes) },
  ]);
}
