// SPDX-License-Identifier: Apache-2.0
// The page's heart: asks the daemon once a second while the page is visible, says when it does not answer, and hands what it
// said to the charts and tables.

import { Charts } from "./charts.js";
import { byId, element, keyed, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";
import { Steer, showSteer } from "./steer.js";
import { OtherVersion, Store } from "./store.js";
import { showBackends, showEvents, showMachine, showReasons, showService, showServices } from "./tables.js";

const PERIOD_MS = 1000;
const PATIENCE_MS = 2500;  // for one answer
const STALE_MS = 3500;     // without a new sample
const STEER_PERIOD_MS = 2000;  // supervisors of `hedgerow steer` are asked less often: each answer costs them a look at their maps

const store = new Store();
const steer = new Steer();
let steerAskedMs = -Infinity;
const charts = new Charts(byId("charts"), draw);
let chosen = null;
let pausedAt = null;  // the daemon's clock, while the picture stands still
let otherVersion = false;
let askedMs = 0;         // performance.now() of the last question
let freshMs = performance.now();  // of the last new sample
let answered = false;    // whether the last question was
let silentSince = null;  // the daemon's clock, while it is stale

async function ask() {
  askedMs = performance.now();
  const before = `${store.boot}/${store.next}`;
  try {
    if (!store.take(await fetchData())) store.take(await fetchData());
    answered = true;
    if (`${store.boot}/${store.next}` !== before) freshMs = performance.now();
  } catch (error) {
    answered = false;
    otherVersion = error instanceof OtherVersion;
  }
}

// Beside the page's own data: a supervisor that answers slowly must not hold that up.
async function askSteer() {
  if (performance.now() - steerAskedMs < STEER_PERIOD_MS) return;
  steerAskedMs = performance.now();
  try {
    steer.take(await fetchJson("/api/v1/steer"));
  } catch { /* the page's own data says that the daemon does not answer */ }
}

const fetchData = () => fetchJson(`/api/v1/page?after=${store.next}`);

async function fetchJson(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

async function run() {
  for (;;) {
    if (!document.hidden) {
      askSteer();
      await ask();
      try {
        draw();
      } catch (error) {
        console.error(error);  // a fault of the page's must not stop it
      }
    }
    const rest = document.hidden ? PERIOD_MS : Math.max(100, PERIOD_MS - (performance.now() - askedMs));
    await new Promise((resolve) => { setTimeout(resolve, rest); });
  }
}

const isStale = () => store.boot === null ? !answered && performance.now() - freshMs > STALE_MS :
  performance.now() - freshMs > STALE_MS;

function problems() {
  const found = [...(store.data?.status?.problems ?? []), ...steer.problems()].map((text) => ({ text, bad: false }));
  if (!isStale()) {
    silentSince = null;
    return found;
  }
  if (otherVersion) return [{ text: "hedgerowd was exchanged for another version: load this page anew.", bad: true }];
  silentSince ??= store.last ? clock(store.last.at) : "the page was opened";
  const why = answered ? "hedgerowd answers, but its loop has read nothing" : "hedgerowd has not answered";
  return [{ text: `${why} since ${silentSince}. What you see is what was known then; the kernel's part may still be hedging.`,
    bad: true }, ...found];
}

function drawState() {
  const state = isStale() ? "stale" : store.last === null ? "waiting" : pausedAt !== null ? "paused" : store.data.status?.state ?? "waiting";
  const words = { waiting: "waiting for data", stale: "stale: no new data" };
  const pill = byId("state");
  setAttribute(pill, "data-state", state);
  setText(pill, words[state] ?? state);
  document.body.classList.toggle("stale", state === "stale");
  setText(byId("instance"), store.data?.status?.instance ?? "");
  setText(byId("as-of"), store.last ? `as of ${clock(store.last.at)}` : "");
  document.title = [state === "running" ? "" : `${state} –`, "Hedgerow", store.data?.status?.instance ?? ""].filter(Boolean).join(" ");
  keyed(byId("alerts"), problems(), (problem) => problem.text,
    (problem) => element("p", { class: problem.bad ? "alert bad" : "alert" }), (node, problem) => setText(node, problem.text));
}

function draw() {
  drawState();
  const status = store.data?.status;
  if (!status || store.last === null) return;
  const statuses = status.services;
  if (!statuses.some((service) => service.name === chosen)) chosen = startingService(statuses);
  const about = store.data.services.find((service) => service.name === chosen);
  const service = statuses.find((each) => each.name === chosen);
  byId("service").hidden = !about;
  if (!about) return;
  offerWindows(store.data.history_seconds);
  charts.show({ store, about, status: service, seconds: Number(byId("window").value), now: pausedAt ?? store.last.at });
  showServices(store, statuses, chosen, choose);
  if (pausedAt !== null) return;
  showService(store, about, service);
  showBackends(store, about, service);
  showReasons(about);
  showSteer(steer);
  showEvents(store);
  showMachine(status);
}

// The one that the address names (#dns), or the first.
function startingService(statuses) {
  const named = decodeURIComponent(location.hash.slice(1));
  return statuses.some((service) => service.name === named) ? named : statuses[0]?.name ?? null;
}

function choose(name) {
  chosen = name;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  draw();
}

// As many as the daemon's memory fills.
function offerWindows(kept) {
  const windows = [60, 300, 600, 1800, 3600].filter((seconds) => seconds <= kept);
  keyed(byId("window"), windows, (seconds) => seconds, (seconds) => element("option", { value: seconds }),
    (option, seconds) => setText(option, seconds === 60 ? "1 minute" : `${seconds / 60} minutes`));
}

const THEMES = ["system", "light", "dark"];
function setTheme(theme) {
  setAttribute(document.documentElement, "data-theme", theme === "system" ? null : theme);
  byId("theme").dataset.theme = theme;
  setText(byId("theme"), `Theme: ${theme}`);
  try {
    localStorage.setItem("theme", theme);
  } catch { /* a browser that keeps nothing */ }
}

function savedTheme() {
  try {
    return THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system";
  } catch {
    return "system";
  }
}

byId("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(byId("theme").dataset.theme) + 1) % THEMES.length]);
});
byId("pause").addEventListener("click", () => {
  pausedAt = pausedAt === null && store.last ? store.last.at : null;
  setAttribute(byId("pause"), "aria-pressed", pausedAt !== null);
  draw();
});
byId("window").addEventListener("change", draw);
document.addEventListener("visibilitychange", () => {
  // A hidden page asks nothing: that is no silence of the daemon's.
  if (!document.hidden) freshMs = performance.now();
});
setTheme(savedTheme());
run();
