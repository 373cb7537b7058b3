// SPDX-License-Identifier: Apache-2.0
// One line chart over time as SVG: axes, lines, a reference line, marks of events, and a cursor that pointer and keyboard
// move. It is a slider to assistive technology, whose value is read out; every number can also be had as a table.
// charts.js makes them.

import { element, setAttribute, setText, svg } from "./dom.js";
import { NONE, clock, clockMinutes, short } from "./format.js";

const HEIGHT = 176, TOP = 18, BOTTOM = 20, LEFT = 58, RIGHT = 10;
const GAP_S = 3;  // without samples for longer, a line is broken
const TABLE_ROWS = 12;

// Bounds and ticks that people read easily.
export function linearScale(high) {
  const rough = Math.max(high, 1e-9) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
  const top = Math.ceil(high / step - 1e-9) * step || step;
  const ticks = [];
  for (let tick = 0; tick <= top * 1.0001; tick += step) ticks.push(tick);
  return { ticks, at: (value) => value / top };
}

export function logScale(low, high) {
  const nice = (value, round) => {
    const power = 10 ** Math.floor(Math.log10(value));
    const steps = round === "down" ? [5, 2, 1] : [1, 2, 5, 10];
    const fits = (step) => (round === "down" ? step * power <= value * 1.0001 : step * power >= value * 0.9999);
    return steps.find(fits) * power;
  };
  let bottom = nice(low, "down");
  const top = Math.max(nice(high, "up"), bottom * 10);
  const ticks = [];
  const wide = top / bottom > 1000;
  for (let power = 10 ** Math.floor(Math.log10(bottom)); power <= top; power *= 10) {
    for (const step of wide ? [1] : [1, 2, 5]) {
      const tick = step * power;
      if (tick >= bottom * 0.999 && tick <= top * 1.001) ticks.push(tick);
    }
  }
  return { ticks, at: (value) => Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom) };
}

export class Chart {
  // spec: {id, title, about, format(value), scale: "linear" | "log", least}. `onCursor(at or null)` is told where the
  // cursor goes; the caller draws again.
  constructor(spec, onCursor) {
    this.spec = spec;
    this.onCursor = onCursor;
    this.view = null;
    this.summary = element("p", { class: "quiet", id: `${spec.id}-summary` });
    this.legend = element("ul", { class: "legend" });
    this.readout = element("p", { class: "readout" });
    this.drawing = svg("svg", { "aria-hidden": "true", focusable: "false" });
    this.plot = element("div", {
      class: "plot", role: "slider", tabindex: "0", "aria-label": `${spec.title}: a moment`,
      "aria-describedby": `${spec.id}-summary`, "aria-valuemin": "0",
    }, this.drawing);
    this.table = element("table");
    this.numbers = element("details", {}, element("summary", {}, `${spec.title} as numbers`), this.table);
    this.figure = element("figure", { id: spec.id }, element("figcaption", {}, element("h3", {}, spec.title), this.summary),
      this.legend, this.plot, this.readout, this.numbers);
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("pointermove", (event) => this.onPointer(event));
    this.plot.addEventListener("pointerdown", (event) => this.onPointer(event));
    this.plot.addEventListener("pointerleave", () => this.onCursor(null));
    this.numbers.addEventListener("toggle", () => this.drawTable());
    this.width = 0;
    new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
      this.draw();
    }).observe(this.plot);
  }

  // view: {samples, from, to, series: [{name, style, value(sample), summary}], reference: {value, name} or null,
  //        marks: [{at, name, style}], cursor: ms or null}
  show(view) {
    this.view = view;
    this.draw();
    this.drawLegend();
    this.drawReadout();
    if (this.numbers.open) this.drawTable();
  }

  onKey(event) {
    const samples = this.view?.samples ?? [];
    if (samples.length === 0) return;
    const here = this.view.cursor === null ? samples.length - 1 : this.nearest(this.view.cursor);
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -30, PageUp: 30,
      Home: -samples.length, End: samples.length };
    if (event.key === "Escape") this.onCursor(null);
    else if (event.key in moves) {
      const there = Math.min(samples.length - 1, Math.max(0, here + moves[event.key]));
      this.onCursor(samples[there].at);
    } else return;
    event.preventDefault();
  }

  onPointer(event) {
    const samples = this.view?.samples ?? [];
    if (samples.length === 0) return;
    const x = event.clientX - this.drawing.getBoundingClientRect().left;
    const share = (x - LEFT) / Math.max(1, this.width - LEFT - RIGHT);
    this.onCursor(samples[this.nearest(this.view.from + share * (this.view.to - this.view.from))].at);
  }

  nearest(at) {
    let best = 0;
    this.view.samples.forEach((sample, i) => {
      if (Math.abs(sample.at - at) < Math.abs(this.view.samples[best].at - at)) best = i;
    });
    return best;
  }

  x(at) {
    return LEFT + ((at - this.view.from) / (this.view.to - this.view.from)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    return TOP + (1 - this.scale.at(value)) * (HEIGHT - TOP - BOTTOM);
  }

  makeScale() {
    const { series, samples, reference } = this.view;
    let low = Infinity, high = -Infinity;
    const see = (value) => {
      if (value === null || value === undefined) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const { value } of series) for (const sample of samples) see(value(sample));
    if (reference) see(reference.value);
    if (this.spec.scale === "log") return high > 0 ? logScale(Math.max(low, 1), high) : logScale(1e6, 1e7);
    return linearScale(Math.max(high, this.spec.least));
  }

  draw() {
    if (!this.view || this.width === 0) return;
    this.scale = this.makeScale();
    setAttribute(this.drawing, "viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const [reference, name] = this.drawReference();
    this.drawing.replaceChildren(...this.drawAxes(), ...reference, ...this.view.series.map((each) =>
      svg("path", { class: `series ${each.style}`, d: this.pathOf(each), "data-series": each.name })),
    ...name, ...this.drawMarks(), ...this.drawCursor());
  }

  drawAxes() {
    const right = this.width - RIGHT;
    const parts = this.scale.ticks.flatMap((tick, i) => [
      svg("line", { class: i === 0 ? "base" : "grid", x1: LEFT, x2: right, y1: this.y(tick), y2: this.y(tick) }),
      svg("text", { x: LEFT - 6, y: this.y(tick) + 4, "text-anchor": "end" }, short(this.spec.format(tick))),
    ]);
    const span_s = (this.view.to - this.view.from) / 1000;
    const room = Math.max(2, Math.floor((right - LEFT) / 75));
    const step_s = [10, 15, 30, 60, 120, 300, 600, 1200].find((step) => span_s / step <= room) ?? 1200;
    const name = step_s < 60 ? clock : clockMinutes;
    for (let at = Math.ceil(this.view.from / 1000 / step_s) * step_s * 1000; at <= this.view.to; at += step_s * 1000) {
      if (this.x(at) > this.width - 28) continue;  // it would be cut off
      parts.push(svg("text", { x: this.x(at), y: HEIGHT - 5, "text-anchor": "middle" }, name(at)));
    }
    return parts;
  }

  // The line, and its name, which is drawn over the series on a ground of its own.
  drawReference() {
    const { reference } = this.view;
    if (!reference) return [[], []];
    const y = this.y(reference.value);
    const base = y < TOP + 14 ? y + 15 : y - 5;
    const width = reference.name.length * 6.8;
    return [[svg("line", { class: "reference", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y })],
      [svg("rect", { class: "under", x: LEFT + 4, y: base - 11, width, height: 14 }),
        svg("text", { class: "reference-name", x: LEFT + 6, y: base }, reference.name)]];
  }

  pathOf({ value }) {
    let path = "", before = null;
    for (const sample of this.view.samples) {
      const v = value(sample);
      if (v === null || v === undefined) {
        before = null;
        continue;
      }
      const point = `${this.x(sample.at).toFixed(1)} ${this.y(v).toFixed(1)}`;
      const joined = before !== null && sample.at - before.at <= GAP_S * 1000;
      // A point alone is a dot, drawn by the line's round end.
      path += joined ? `L${point}` : `M${point}h0.1`;
      before = sample;
    }
    return path;
  }

  drawMarks() {
    const marks = this.view.marks.filter(({ at }) => at >= this.view.from && at <= this.view.to);
    const lines = marks.map(({ at, name, style }) => svg("line", { class: `mark ${style}`, x1: this.x(at), x2: this.x(at),
      y1: TOP - 4, y2: HEIGHT - BOTTOM, "data-mark": style, "data-name": name }));
    // Where names would overlap, a leader's goes before others and the latest before earlier ones.
    const taken = [];
    const names = [...marks].sort((a, b) => (b.style === "leader") - (a.style === "leader") || b.at - a.at)
      .flatMap(({ at, name }) => {
        const x = this.x(at), width = name.length * 6.8;
        const anchor = x + width > this.width - RIGHT ? "end" : "start";
        const left = anchor === "end" ? x - width : x;
        if (left < 0 || taken.some(([from, to]) => left < to + 6 && left + width + 6 > from)) return [];
        taken.push([left, left + width]);
        return [svg("text", { class: "mark-name", x, y: TOP - 7, "text-anchor": anchor }, name)];
      });
    return [...lines, ...names];
  }

  drawCursor() {
    if (this.view.cursor === null) return [];
    const x = this.x(this.view.cursor);
    return [svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM })];
  }

  drawLegend() {
    const wanted = this.view.series.map((each) => each.name).join("\n");
    if (this.legend.dataset.names !== wanted) {
      this.legend.dataset.names = wanted;
      this.legend.replaceChildren(...this.view.series.map((each) => element("li", {},
        svg("svg", { viewBox: "0 0 30 8", "aria-hidden": "true" },
          svg("path", { class: `series ${each.style}`, d: "M1 4H29" })), ` ${each.name} `, element("b"))));
    }
    this.view.series.forEach((each, i) => setText(this.legend.children[i].lastElementChild, this.valueText(each, this.shown())));
    setText(this.summary, this.spec.about);
  }

  // What the legend and the readout are about: the cursor's sample, or the last one.
  shown() {
    const { samples, cursor } = this.view;
    if (samples.length === 0) return null;
    return cursor === null ? samples.at(-1) : samples[this.nearest(cursor)];
  }

  valueText({ value }, sample) {
    const found = sample === null ? null : value(sample);
    return found === null || found === undefined ? NONE : this.spec.format(found);
  }

  drawReadout() {
    const sample = this.shown();
    const values = this.view.series.map((each) => `${each.name} ${this.valueText(each, sample)}`).join(", ");
    const marks = sample === null ? [] : this.view.marks.filter(({ at }) => Math.abs(at - sample.at) <= 1000);
    const text = sample === null ? "no samples yet" :
      `${clock(sample.at)}: ${values}${marks.map(({ text: words }) => `; ${words}`).join("")}`;
    setText(this.readout, this.view.cursor === null ? "" : text);
    setAttribute(this.plot, "aria-valuemax", Math.max(0, this.view.samples.length - 1));
    setAttribute(this.plot, "aria-valuenow", sample === null ? 0 : this.view.samples.indexOf(sample));
    // Without a cursor the value changes each second, too often to be read aloud.
    if (this.view.cursor !== null || document.activeElement !== this.plot) setAttribute(this.plot, "aria-valuetext", text);
  }

  // The window in a dozen parts: the highest value of each.
  drawTable() {
    if (!this.numbers.open || !this.view) return;
    const { samples, series } = this.view;
    const size = Math.max(1, Math.ceil(samples.length / TABLE_ROWS));
    const head = element("tr", {}, element("th", { scope: "col" }, "From"),
      ...series.map((each) => element("th", { scope: "col", class: "number" }, `${each.name}, highest`)));
    const rows = [];
    for (let i = 0; i < samples.length; i += size) {
      const part = samples.slice(i, i + size);
      rows.push(element("tr", {}, element("th", { scope: "row" }, clock(part[0].at)), ...series.map((each) => {
        const values = part.map(each.value).filter((value) => value !== null && value !== undefined);
        const text = values.length === 0 ? NONE : this.spec.format(Math.max(...values));
        return element("td", { class: "number", "data-label": each.name }, text);
      })));
    }
    this.table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows.reverse()));
  }
}
