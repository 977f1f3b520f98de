// A head as arcs and as a matrix, on the same columns: the keys' words are the feet of the arcs and the head of the
// matrix.
"use strict";
const SVG = "http://www.w3.org/2000/svg", FONT = "13px system-ui, sans-serif", ROW = 22, ARCS = 132, LEAST = 0.02;

function make(tag, attributes = {}, ...children) {
  const drawn = ["svg", "g", "rect", "path", "text"].includes(tag),
    node = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name,
      value === true && !name.startsWith("aria") ? "" : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

const ruler = document.createElement("canvas").getContext("2d");
function widthOf(text) {
  ruler.font = FONT;
  return ruler.measureText(text).width;
}

// given: queries and keys (words), strength(q, k) from 0 to 1, weight(q, k), colour, same (queries are the keys'
// words), and what is changed: fate(q, k) is undefined, null (cut) or the key that it is redirected to.
function drawHead(given) {
  const { queries, keys, strength, weight, colour, same, fate, label, room } = given,
    gutter = Math.max(40, ...queries.map(widthOf)) + 14;
  const spread = words => { // as wide as the words, and wider where there is room
    const free = space => room - gutter - 4 - words.reduce((sum, word) => sum + Math.max(26, widthOf(word) + space), 0),
      space = free(14) < 0 ? 6 : 14,  // a narrow screen
      widths = words.map(word => Math.max(26, widthOf(word) + space)), left = free(space);
    return widths.map(width => width + Math.max(0, Math.min(34, left / words.length)));
  };
  const columns = spread(keys), tops = same ? columns : spread(queries);
  const starts = widths => widths.reduce((at, width) => [...at, at.at(-1) + width], [gutter]),
    left = starts(columns), topLeft = starts(tops);
  const foot = 30 + ARCS, first = foot + 19, width = Math.max(left.at(-1), topLeft.at(-1)) + 4,
    height = first + ROW * queries.length + 6;
  const middleOf = (at, widths, i) => at[i] + widths[i] / 2;
  const svg = make("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`,
    "font-family": "system-ui, sans-serif", "font-size": 13, role: "group", "aria-label": label });
  const arcs = make("g", { class: "arcs", fill: "none", stroke: colour, "stroke-width": 2.4,
    "stroke-linecap": "round", "aria-hidden": true });
  queries.forEach((_, q) => keys.forEach((_, k) => {
    const s = strength(q, k), changed = fate(q, k), x = middleOf(topLeft, tops, q), y = middleOf(left, columns, k),
      bend = ARCS * 0.5;
    if (!(s >= LEAST) && changed === undefined) return;
    const d = `M${x} 26C${x} ${26 + bend} ${y} ${foot - 8 - bend} ${y} ${foot - 8}`;
    arcs.append(make("path", { d, "data-q": q, "data-k": k, "stroke-opacity": Math.min(1, s) }));
    if (changed !== undefined) arcs.append(make("path", { d, "data-q": q, "data-k": k, stroke: "var(--cut)",
      "stroke-dasharray": "2 6", "stroke-width": 1.6 }));
    if (s >= 0.05 || changed !== undefined) arcs.append(make("path",
      { d, class: "hit", "data-q": q, "data-k": k, stroke: "transparent", "stroke-width": 11 }));
  }));
  const word = (text, x, y, more) => make("text", { x, y, "text-anchor": "middle", fill: "currentColor", ...more },
    text);
  const top = make("g", { "aria-hidden": true },
    ...queries.map((text, q) => word(text, middleOf(topLeft, tops, q), 17, { "data-q": q })));
  const grid = make("g", { role: "grid", "aria-label": `${label}: weights` });
  grid.append(make("g", { role: "row" }, ...keys.map((text, k) =>
    word(text, middleOf(left, columns, k), foot + 10, { "data-k": k, role: "columnheader" }))));
  queries.forEach((text, q) => {
    const y = first + q * ROW, row = make("g", { role: "row" });
    row.append(make("text", { role: "rowheader", x: gutter - 10, y: y + 15, "text-anchor": "end",
      fill: "currentColor", "data-q": q }, text));
    keys.forEach((key, k) => {
      const changed = fate(q, k), to = keys.findIndex((_, j) => fate(q, j) === k) >= 0, w = weight(q, k);
      const done = changed === undefined ? "" : changed === null ? ", cut" : `, redirected to ${keys[changed]}`;
      const cell = make("g", { role: "gridcell", class: "cell", tabindex: -1, "data-q": q, "data-k": k,
        "aria-label": `${text} to ${key}: ${w === null ? "not seen" : w.toFixed(2)}${done}` },
        make("rect", { x: left[k] + 0.5, y: y + 0.5, width: columns[k] - 1, height: ROW - 1,
          fill: w === null ? "none" : "var(--card)", stroke: "var(--rule)", "stroke-width": w === null ? 0 : 0.6 }),
        make("rect", { class: "weight", x: left[k] + 1, y: y + 1, width: columns[k] - 2, height: ROW - 2, rx: 1,
          fill: colour, "fill-opacity": w === null ? 0 : Math.min(1, strength(q, k)) }));
      if (to) cell.append(make("rect", { x: left[k] + 1.5, y: y + 1.5, width: columns[k] - 3, height: ROW - 3,
        fill: "none", stroke: "var(--cut)", "stroke-width": 2, "stroke-dasharray": "4 3" }));
      if (changed !== undefined) cell.append(make("text", { x: left[k] + columns[k] / 2, y: y + 15.5,
        "text-anchor": "middle", fill: "var(--cut)", "font-weight": 700 },
        changed === null ? "\u2715" : changed > k ? "\u2192" : "\u2190"));
      row.append(cell);
    });
    grid.append(row);
  });
  svg.append(arcs, top, grid);
  // the column at a place
  svg.keyAt = x => left.findIndex((at, k) => k < keys.length && x >= at && x < at + columns[k]);
  svg.cell = (q, k) => svg.querySelector(`.cell[data-q="${q}"][data-k="${k}"]`);
  svg.from = q => ({ x: middleOf(topLeft, tops, q), y: 26 });
  return svg;
}
