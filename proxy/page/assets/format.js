// SPDX-License-Identifier: Apache-2.0
// Quantities as people read them. "–" stands for what is not known.

export const NONE = "–";

function digits(value, significant = 3) {
  if (value === 0) return "0";
  const places = Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 2));
}

export function duration(ns) {
  if (ns === null || ns === undefined || ns < 0) return NONE;
  if (ns < 1e6) return `${digits(ns / 1e3)} µs`;
  if (ns < 1e9) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

export const whole = (value) => (value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en"));

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value !== 0 && value < 10 ? digits(value, 2) : whole(value);
}

export const percent = (share) => (share === null || share === undefined ? NONE : `${digits(100 * share)} %`);

// "10 ms" for "10.0 ms": of what was configured, and of ticks, there is no more to know.
export const short = (text) => text.replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const clockMinutes = (ms) => clock(ms).slice(0, 5);

export function age(ns) {
  const seconds = Math.floor(ns / 1e9);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = Math.max(0, parts.findIndex(([length]) => seconds >= length));
  const texts = [];
  let left = seconds;
  for (const [length, unit] of seconds < 1 ? [[1, "s"]] : parts.slice(first, first + 2)) {
    texts.push(`${Math.floor(left / length)} ${unit}`);
    left %= length;
  }
  return texts.join(" ");
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  return count < 1024 ** 2 ? `${digits(count / 1024)} KiB` : `${digits(count / 1024 ** 2)} MiB`;
}
