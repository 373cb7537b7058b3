// SPDX-License-Identifier: Apache-2.0
// Small tools for building and changing elements. Text goes in as text, never as markup; what has not changed is not
// touched, so that focus, selection and screen readers are left in peace.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

export const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

// null and undefined take the attribute away.
export function setAttribute(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function setText(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

// Makes the children of `parent` stand for `items`, in their order. A child is kept as long as its key is there.
export function keyed(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}

// A table's body: `columns` are {label, value(item), quiet?(item), tone?(item), number?}; the first is the row's head.
export function fillTable(body, items, keyOf, columns, makeHead = null) {
  const make = () => element("tr", {}, ...columns.map((column, i) => {
    const cell = element(i === 0 ? "th" : "td", {
      scope: i === 0 ? "row" : null, class: column.number ? "number" : null, "data-label": i === 0 ? null : column.label,
    });
    const inner = i === 0 && makeHead ? makeHead() : element("span");
    cell.append(inner);
    if (column.quiet) cell.append(element("span", { class: "quiet" }));
    return cell;
  }));
  keyed(body, items, keyOf, make, (row, item) => {
    columns.forEach((column, i) => {
      const [inner, quiet] = row.children[i].children;
      setText(inner, column.value(item));
      if (quiet) setText(quiet, column.quiet(item));
      if (column.tone) setAttribute(inner, "class", column.tone(item));
      if (column.update) column.update(inner, item);
    });
  });
}
