// The page: what one sees and changes. The model runs in engine.js, in a worker.
"use strict";
let RUN = JSON.parse($("run").textContent); // name, config, presets, sentences, averages
let offsets = null, shown = null, turns = 0, task = null;
const NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
const state = { text: "", beams: 1, hold: false, heads: {}, edges: [], chosen: null, edge: null, every: false,
  word: null, relative: false, above: false };
const past = [], future = [];

// --- the engine, in a worker where the page may have one -----------------------------------------------------------
function bytes(id) {
  const text = $(id)?.textContent;
  if (!text) return null;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text).buffer;
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out.buffer;
}
const ask = connect($("engine").textContent, "Engine", () => new Engine());

const parsed = name => { const [stack, layer, head] = name.split("."); return { stack, layer: +layer, head: +head }; };
const titled = (stack, layer, head) =>
  `${NAMES[stack]}, layer ${layer + 1}, ${head === null ? "every head" : `head ${head + 1}`}`;
const changes = () => ({ heads: state.heads, edges: state.edges });
const changed = () => state.edges.length > 0 || Object.keys(state.heads).length > 0;
const bare = piece => piece.replaceAll(WORD_START, "");
const wordOf = piece => piece === "</s>" ? "end" : piece === "<s>" ? "start" : bare(piece) || "\u00b7";
const withRule = x => x.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "\u2212");

// --- a change: undone with the sentence that it belongs to ---------------------------------------------------------
const remembered = () => JSON.stringify({ text: state.text, heads: state.heads, edges: state.edges });
function change(how) {
  past.push(remembered());
  future.length = 0;
  how();
  return update();
}
function travel(from, to) {
  if (!from.length) return;
  to.push(remembered());
  Object.assign(state, JSON.parse(from.pop()), { edge: null });
  $("text").value = state.text;
  update();
}
function setText(text) {
  if (text === state.text) return update();
  change(() => { Object.assign(state, { text, edges: [], edge: null, word: null }); });
}
function setHead(name, how) {
  change(() => { how === "on" ? delete state.heads[name] : state.heads[name] = how; });
}
function fated(edge) {
  return state.edges.findIndex(e => ["stack", "layer", "head", "query", "key"].every(part => e[part] === edge[part]));
}
function setEdge(query, key, to) { // to: a key, null (cut), or undefined (as it was)
  const { stack, layer, head } = parsed(state.chosen);
  change(() => {
    for (const h of [head, null]) {
      const at = fated({ stack, layer, head: h, query, key });
      if (at >= 0) state.edges.splice(at, 1);
    }
    const chosen = state.every ? null : head;
    if (to !== undefined && to !== key) state.edges.push({ stack, layer, head: chosen, query, key, to });
    state.edge = [query, key];
  });
}

// --- from the state to what is shown -------------------------------------------------------------------------------
const memory = new Map(); // translations as trained
async function asTrained(text, beams) {
  const name = `${beams} ${text}`;
  if (!memory.has(name)) memory.set(name, await ask("translate", { text, beams, changes: {} }));
  return memory.get(name);
}
async function update() {
  const turn = ++turns, begun = performance.now();
  writeAddress();
  try {
    const before = await asTrained(state.text, state.beams);
    const now = changed() ? await ask("translate", { text: state.text, beams: state.beams, changes: changes(),
      held: state.hold ? before.output : null }) : before;
    if (turn !== turns) return;
    shown = { before, now };
  } catch (error) {
    if (turn !== turns) return;
    if (shown) renderChanges();
    return say(error.message);
  }
  render();
  const seconds = performance.now() - begun;
  const heard = make("span", { class: "hidden" }, `${shown.now.text} `); // what a screen reader says
  say(heard, shown.now.cut ? `Only the first ${shown.now.src.length} tokens are read.`
    : `computed in ${Math.max(1, Math.round(seconds))} ms`);
  document.body.dataset.ready = turn;
}
function say(...text) { $("said").replaceChildren(...text); }
function telling() { // the encoder's head with the weight farthest above its average at that offset
  const most = name => Math.max(...shown.now.maps[name].slice(0, -1).flatMap((row, q) => Array.from(row).slice(0, -1)
    .map((w, k) => w - (offsets?.[name][offsetPlace(q, k, row.length, "encoder")] ?? 0))));
  return Object.keys(shown.now.maps).filter(name => name.startsWith("encoder"))
    .reduce((a, b) => most(b) > most(a) ? b : a);
}
function render() {
  state.chosen ??= telling();
  renderOutcome();
  renderGrids();
  renderHead();
  renderChanges();
  renderPython();
  renderTask();
}

// --- the two translations ------------------------------------------------------------------------------------------
function groups(pieces) { // pieces as words: lists of places
  const words = [];
  pieces.forEach((piece, i) => {
    if (!words.length || piece.startsWith(WORD_START) || piece === "</s>") words.push([]);
    words.at(-1).push(i);
  });
  return words;
}
function renderOutcome() {
  const { before, now } = shown,
    texts = [before, now].map(({ written }) => groups(written).map(word => word.map(i => bare(written[i])).join("")));
  const { gone, fresh } = changedWords(...texts);
  renderWords("before", before, null, gone, "s");
  renderWords("now", now, changed() && String(before.output) === String(now.output) ? before : null, fresh, "mark");
  $("now").classList.toggle("same", !changed());
  $("hold").checked = state.hold;
  const open = state.word !== null && state.word < now.next.length;
  $("next").hidden = !open;
  if (!open) return;
  const list = (title, { next, written }) =>
    make("div", {}, make("h3", {}, title), make("ol", { lang: RUN.config.data?.tgt }, ...(next[state.word]?.first ?? []).map(([piece, p]) =>
    make("li", {}, make("span", {}, piece === written[state.word] ? make("b", {}, wordOf(piece)) : wordOf(piece)),
      meter(p), make("span", {}, p.toFixed(2))))));
  $("next").replaceChildren(list("As trained: the likeliest next tokens", before), list("Now", now));
}
function meter(part) {
  return make("span", { class: "meter", "aria-hidden": true }, make("b", { style: `width:${100 * part}%` }));
}
function renderWords(place, { written, next }, compared, marked, tag) {
  const words = groups(written).map((word, w) => make("span", { role: "listitem" }, ...word.map(i => {
    const p = Math.exp(next[i].log),
      bar = make("i", { "aria-hidden": true }, make("b", { style: `width:${100 * p}%` })), text = wordOf(written[i]);
    if (compared) bar.append(make("u", { style: `left:${100 * Math.exp(compared.next[i].log)}%` }));
    const before = compared ? `, as trained ${Math.exp(compared.next[i].log).toFixed(2)}` : "";
    return make("button", { type: "button", class: written[i] === "</s>" ? "word end" : "word",
      "aria-pressed": String(state.word === i),
      "aria-label": `${text}${marked.has(w) ? ", changed" : ""}, probability ${p.toFixed(2)}${before}`,
      onclick: () => { state.word = state.word === i ? null : i; writeAddress(); renderOutcome(); renderRankNote(); } },
    marked.has(w) ? make(tag, {}, text) : text, bar, make("small", {}, p.toFixed(2).replace(/^0/, "")));
  })));
  refocused($(place), () => $(place).replaceChildren(...words));
}

// --- all heads -----------------------------------------------------------------------------------------------------
const isAbove = () => state.above && offsets;
function strengths(name) { // [query][key], from 0 to 1
  const rows = shown.now.maps[name], { stack } = parsed(name);
  const out = rows.map((row, q) => isAbove()
    ? Float32Array.from(row, (w, k) => Math.max(0, w - (offsets[name][offsetPlace(q, k, row.length, stack)] ?? 0)))
    : row);
  if (!state.relative) return out;
  const most = out.reduce((max, row) => Math.max(max, ...row), 1e-6);
  return out.map(row => row.map(w => w / most));
}
const tint = stack => getComputedStyle($("grids")).getPropertyValue(`--${stack}`).trim();
const hows = () => ["on", "zero", ...(offsets ? ["mean"] : [])]; // no mean without averages
function buildGrids() {
  const { n_layers, n_heads } = RUN.config.model;
  $("grids").replaceChildren(...Object.keys(NAMES).map(stack => make("div", { class: "grid", "data-stack": stack },
    make("h3", {}, `${NAMES[stack]} `,
      make("small", {}, { encoder: "source looks at source", decoder: "written looks at written",
      cross: "written looks at source" }[stack])),
    make("div", { role: "grid", "aria-label": `${NAMES[stack]}: heads`, onkeydown: gridKeys },
      ...Array.from({ length: n_layers }, (_, layer) => make("div", { class: "layer", role: "row" },
        make("span", { role: "rowheader", "aria-label": `layer ${layer + 1}` }, String(layer + 1)),
        ...Array.from({ length: n_heads }, (_, head) => {
        const name = `${stack}.${layer}.${head}`;
        return make("div", { class: "map", role: "gridcell", "data-head": name, tabindex: -1,
          title: titled(stack, layer, head), onclick: () => choose(name) }, make("canvas", { "aria-hidden": true }),
          make("div", { class: "three", "aria-hidden": true }, ...hows().map(how =>
            make("span", { class: how, title: how, onclick: event => {
              event.stopPropagation();
              state.chosen = name;
              setHead(name, how);
            } }))));
      })))))));
}
function renderGrids() {
  const colours = Object.fromEntries(Object.keys(NAMES).map(stack => [stack, tint(stack)]));
  for (const map of document.querySelectorAll(".map")) {
    const name = map.dataset.head, { stack, layer, head } = parsed(name), how = state.heads[name] ?? "on",
      chosen = name === state.chosen;
    const edges = state.edges.filter(edge => edge.stack === stack && edge.layer === layer
      && (edge.head === null || edge.head === head)).length;
    map.className = `map ${how}${edges ? " edged" : ""}`;
    map.setAttribute("aria-selected", chosen);
    map.setAttribute("aria-label", `${titled(stack, layer, head)}: ${how}${edges ? `, ${edges} edges changed` : ""}`);
    map.tabIndex = chosen || (stack !== parsed(state.chosen).stack && !layer && !head) ? 0 : -1;
    paint(map.querySelector("canvas"), strengths(name), colours[stack]);
  }
}
function gridKeys(event) {
  const name = event.target.dataset.head, moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0],
    ArrowDown: [1, 0] }, how = { 1: "on", 0: "zero", m: offsets && "mean" }[event.key];
  const { stack, layer, head } = parsed(name);
  if (moves[event.key]) {
    const [down, right] = moves[event.key],
      to = document.querySelector(`[data-head="${stack}.${layer + down}.${head + right}"]`);
    if (to) { choose(to.dataset.head); to.focus(); }
  } else if (how) { choose(name); setHead(name, how); }
  else if (event.key === "Enter" || event.key === " ") choose(name);
  else return;
  event.preventDefault();
}
function choose(name) {
  Object.assign(state, { chosen: name, edge: null });
  writeAddress();
  renderGrids();
  renderHead();
  renderPython();
}

// Pale but for one query, one key, or one edge.
function light(svg, q = null, k = null) {
  for (const node of svg.querySelectorAll("[data-q], [data-k]")) {
    const own = node.dataset, wrong = (q !== null && own.q !== undefined && +own.q !== q)
      || (k !== null && own.k !== undefined && +own.k !== k);
    node.style.opacity = wrong ? (node.classList.contains("cell") ? 0.35 : node.localName === "path" ? 0.06 : 0.45)
      : "";
  }
}

// The figure by itself: colours in place of variables, and text in the page's ink.
function standalone(svg) {
  const copy = svg.cloneNode(true), style = getComputedStyle(document.documentElement);
  copy.querySelectorAll(".hit").forEach(node => node.remove());
  let text = new XMLSerializer().serializeToString(copy);
  text = text.replace(/ style="[^"]*"| tabindex="[^"]*"| data-[qk]="[^"]*"/g, "");
  text = text.replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim())
    .replaceAll("currentColor", style.getPropertyValue("--ink").trim());
  return text.replace(/(<svg[^>]*>)/,
    `$1<rect width="100%" height="100%" fill="${style.getPropertyValue("--paper").trim()}"/>`);
}

// --- one head ------------------------------------------------------------------------------------------------------
function sides(stack, { src, read, written } = shown.now) {
  return { queries: (stack === "encoder" ? src : written).map(wordOf),
    keys: (stack === "decoder" ? read : src).map(wordOf) };
}
function fateOf(query, key) {
  const { stack, layer, head } = parsed(state.chosen);
  for (const h of [head, null]) {
    const at = fated({ stack, layer, head: h, query, key });
    if (at >= 0) return state.edges[at].to;
  }
  return undefined;
}
function renderHead() {
  const { stack, layer, head } = parsed(state.chosen), { queries, keys } = sides(stack),
    rows = shown.now.maps[state.chosen], strong = strengths(state.chosen);
  $("head").dataset.stack = stack;
  $("head-name").textContent = titled(stack, layer, head);
  const held = $("switch").contains(document.activeElement);
  $("switch").replaceChildren(...hows().map(how => {
    const checked = how === (state.heads[state.chosen] ?? "on");
    return make("button", { type: "button", role: "radio", "aria-checked": String(checked),
      tabindex: checked ? 0 : -1, onclick: () => setHead(state.chosen, how) }, how);
  }));
  if (held) $("switch").querySelector("[aria-checked=true]")?.focus();
  $("relative").checked = state.relative;
  $("above").checked = state.above;
  $("above").disabled = !offsets;
  const focused = document.activeElement?.closest?.("#figure") && document.activeElement.dataset,
    at = $("figure").scrollLeft;
  const svg = drawHead({ queries, keys, colour: `var(--${stack})`, same: stack === "encoder",
    label: titled(stack, layer, head), fate: fateOf, room: Math.min(900, $("figure").clientWidth),
    strength: (q, k) => strong[q][k] ?? 0, weight: (q, k) => rows[q][k] ?? null });
  $("figure").replaceChildren(svg);
  $("figure").scrollLeft = at;
  const [q, k] = state.edge ?? [focused?.q ?? 0, focused?.k ?? 0], cell = svg.cell(q, k) ?? svg.querySelector(".cell");
  if (cell) cell.setAttribute("tabindex", 0);
  if (focused && cell) cell.focus();
  renderEdge();
  const decodes = stack !== "encoder";
  $("help").replaceChildren(decodes ? "A query of the decoder is the step that writes its word. " : "",
    "Click a line or a square, then cut or redirect it. ", make("span", { class: "mouse" },
      "Or drag it to another word. In the squares: arrow keys, X cuts, R redirects."));
}
function describe(q, k) {
  const { stack } = parsed(state.chosen), { queries, keys } = sides(stack), w = shown.now.maps[state.chosen][q][k],
    before = shown.before.maps[state.chosen][q]?.[k];
  const parts = [make("b", {}, queries[q]), " looks at ", make("b", {}, keys[k]), " with ", w.toFixed(2)];
  const comparable = stack === "encoder" || String(shown.now.output) === String(shown.before.output);
  if (comparable && Math.abs(before - w) > 0.005) parts.push(`, as trained ${before.toFixed(2)}`);
  const average = offsets?.[state.chosen][offsetPlace(q, k, shown.now.maps[state.chosen][q].length, stack)] ?? null;
  const noWord = k === (stack === "decoder" ? 0 : keys.length - 1), sign = k > q ? "+" : k < q ? "\u2212" : "";
  const where = noWord ? `on \u201c${keys[k]}\u201d` : `at offset ${sign}${Math.abs(k - q)}`;
  if (average !== null) parts.push(`; its average ${where} is ${average.toFixed(2)}`);
  return parts;
}
function renderEdge(q = state.edge?.[0], k = state.edge?.[1]) {
  const there = q !== undefined && k !== undefined && shown.now.maps[state.chosen][q]?.[k] !== undefined;
  $("edge").replaceChildren(...(there ? describe(q, k)
    : [make("span", { class: "note" }, "Point at a word, a line or a square.")]));
  const svg = $("figure").firstChild;
  if (there && state.edge) light(svg, q, k); else light(svg, q ?? null, k ?? null);
  const chosen = state.edge && shown.now.maps[state.chosen][state.edge[0]]?.[state.edge[1]] !== undefined;
  $("tools").hidden = !chosen;
  if (!chosen) return;
  const [query, key] = state.edge, { stack } = parsed(state.chosen), { keys } = sides(stack), fate = fateOf(query, key);
  $("cut").textContent = fate === undefined ? "Cut" : "Restore";
  $("every").checked = state.every;
  const possible = keys.map((word, i) => [word, i]).filter(([, i]) => i !== key && (stack !== "decoder" || i <= query));
  $("to").replaceChildren(make("option", { value: "" }, "\u2013"),
    ...possible.map(([word, i]) => make("option", { value: i, selected: fate === i }, `${word} (${i + 1})`)));
}
function pointAtFigure() {
  const figure = $("figure"), number = text => text === undefined ? undefined : +text, placeOf = target => {
    const { q, k } = target.closest?.("[data-q], [data-k]")?.dataset ?? {};
    return [number(q), number(k)];
  };
  let drag = null;
  figure.addEventListener("pointerover", event => { if (!drag && !state.edge) renderEdge(...placeOf(event.target)); });
  figure.addEventListener("pointerleave", () => { if (!drag && !state.edge) renderEdge(); });
  figure.addEventListener("pointerdown", event => {
    const [q, k] = placeOf(event.target);
    const { clientX: x, clientY: y } = event;
    if (event.pointerType !== "touch" && event.button === 0 && q !== undefined && k !== undefined) {
      drag = { q, k, x, y, ghost: null };
    }
  });
  const dropped = () => {
    drag?.ghost?.remove();
    drag = null;
    renderEdge();
  };
  addEventListener("pointercancel", () => drag && dropped());
  addEventListener("pointermove", event => {
    if (drag && !(event.buttons & 1)) return dropped(); // it was let go where the page did not hear of it
    if (!drag || Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < 6) return;
    event.preventDefault();
    const svg = figure.firstChild, box = svg.getBoundingClientRect(), from = svg.from(drag.q),
      x = event.clientX - box.left, y = event.clientY - box.top;
    drag.ghost ??= svg.appendChild(make("path", { fill: "none", stroke: "var(--cut)", "stroke-width": 2.4,
      "stroke-dasharray": "5 4", "pointer-events": "none" }));
    drag.ghost.setAttribute("d", `M${from.x} ${from.y}L${x} ${y}`);
    const key = svg.keyAt(x);
    light(svg, null, key < 0 ? null : key);
    $("edge").replaceChildren(...(key < 0 ? ["Drop it on a column."]
      : ["Redirect to ", make("b", {}, sides(parsed(state.chosen).stack).keys[key])]));
  });
  addEventListener("pointerup", event => {
    if (!drag) return;
    const { q, k, ghost } = drag, svg = figure.firstChild;
    drag = null;
    if (!ghost) return;
    ghost.remove();
    const key = svg.keyAt(event.clientX - svg.getBoundingClientRect().left);
    if (key >= 0 && key !== k && (parsed(state.chosen).stack !== "decoder" || key <= q)) setEdge(q, k, key);
    else renderEdge();
    addEventListener("click", stop => stop.stopPropagation(), { capture: true, once: true });
    setTimeout(() => dispatchEvent(new Event("click"))); // uses the listener up where no click follows
  });
  figure.addEventListener("click", event => {
    const [q, k] = placeOf(event.target), same = state.edge && state.edge[0] === q && state.edge[1] === k;
    state.edge = q === undefined || k === undefined || same || shown.now.maps[state.chosen][q]?.[k] === undefined
      ? null : [q, k];
    renderEdge();
  });
  figure.addEventListener("keydown", event => {
    const [q, k] = placeOf(event.target), moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0],
      ArrowDown: [1, 0] };
    if (q === undefined || k === undefined) return;
    if (moves[event.key]) {
      const [down, right] = moves[event.key], to = figure.firstChild.cell(q + down, k + right);
      if (to) {
        event.target.setAttribute("tabindex", -1);
        to.setAttribute("tabindex", 0);
        to.focus();
        state.edge = null;
        renderEdge(q + down, k + right);
      }
    } else if (event.key === "Enter" || event.key === " ") { state.edge = [q, k]; renderEdge(); }
    else if (["x", "X", "Delete"].includes(event.key)) {
      const seen = shown.now.maps[state.chosen][q]?.[k] !== undefined; // what comes later is not
      if (seen) setEdge(q, k, fateOf(q, k) === undefined ? null : undefined);
    }
    else if (event.key.toLowerCase() === "r") { state.edge = [q, k]; renderEdge(); $("to").focus(); }
    else if (event.key === "Escape") { state.edge = null; renderEdge(); }
    else return;
    event.preventDefault();
  });
}

// --- the list of interventions -------------------------------------------------------------------------------------
function edgeText({ stack, query, key, to }, record = shown.now) {
  const { queries, keys } = sides(stack, record), word = (list, i) => list[i] ?? `position ${i + 1}`;
  return `${word(queries, query)} \u2192 ${word(keys, key)} ${to === null ? "cut" : `redirected to ${word(keys, to)}`}`;
}
function renderChanges() {
  const item = (text, undo) => make("li", {}, make("span", {}, text),
    make("button", { type: "button", "aria-label": `Take back: ${text}`, onclick: () => change(undo) }, "\u2715"));
  const items = [...Object.entries(state.heads).map(([name, how]) => { const { stack, layer, head } = parsed(name);
      return item(`${titled(stack, layer, head)}: ${how}`, () => { delete state.heads[name]; }); }),
    ...state.edges.map((edge, i) => item(`${titled(edge.stack, edge.layer, edge.head)}: ${edgeText(edge)}`,
      () => { state.edges.splice(i, 1); }))];
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  refocused($("changes"), () => $("changes").replaceChildren(...(items.length ? items
    : [make("li", { class: "none" }, "None: the model is as trained.")])), $("undo"));
  $("clear").disabled = !changed();
  renderRankNote();
  const n = RUN.sentences.length, edges = state.edges.length;
  $("count").textContent = `Over ${n} sentences`;
  $("count").disabled = !changed() || !n;
  $("count-note").textContent = !n ? "This page has no sentences with it."
    : !changed() ? "Change something first. Then the same change is made in other sentences, and in a random head."
    : edges ? "An edge is found again by its query\u2019s token and its key\u2019s rank among the words that the query "
      + "looks at in this head. Greedy search."
    : "The same heads in other sentences, and random heads in their place. Greedy search.";
  if ($("counted").dataset.of !== JSON.stringify(changes()) + state.text) $("counted").replaceChildren();
  if ($("ranking").dataset.of !== rankedOf()) $("ranking").replaceChildren();
}
function renderRankNote() {
  const word = state.word !== null && shown.before.written[state.word];
  const what = word ? `\u201c${wordOf(word)}\u201d` : "the whole translation", how = offsets ? "its mean" : "zero";
  $("rank-note").textContent = `The change in the log-probability of ${what} when a head is set to ${how}, or an edge `
    + "is cut, in the model as trained." + (word ? "" : " Click a word of the translation to ask about it alone.");
}

// --- what takes longer ---------------------------------------------------------------------------------------------
let jobs = 0, stopped = false;
async function longer(method, given) { // the newest ends the one before it
  const mine = ++jobs, bar = document.querySelector("progress");
  stopped = false;
  $("progress").hidden = false;
  bar.removeAttribute("value");
  try { return await ask(method, given, done => { if (mine === jobs) bar.value = done; }); }
  catch (error) { say(error.message); return null; }
  finally {
    if (mine === jobs) {
      $("progress").hidden = true;
      if (method !== "average" && RUN.averages === false && !offsets && !stopped) average(); // it was in the way
    }
  }
}
const rankedOf = () => JSON.stringify([RUN.name, state.text, state.beams]);
async function rank(what) {
  const { stack, layer, head } = parsed(state.chosen), { before } = shown, mine = rankedOf(),
    token = state.word !== null && state.word < before.written.length ? state.word : null;
  const found = await longer("rank", { text: state.text, output: before.output, token, what,
    place: { stack, layer, head }, how: offsets ? "mean" : "zero" });
  if (!found || mine !== rankedOf()) return;
  const most = Math.max(1e-9, ...found.found.map(({ change }) => Math.abs(change)));
  const rows = found.found.slice(0, 8).map(one => {
    const { stack, layer, head, query, key, change } = one;
    const label = what === "heads" ? titled(stack, layer, head) : edgeText({ ...one, to: null }, before)
      .replace(/ cut$/, "");
    const show = () => {
      choose(`${stack}.${layer}.${head}`);
      if (what === "heads") return;
      state.edge = [query, key];
      renderHead();
    };
    return make("li", {}, make("button", { type: "button", onclick: show }, label), meter(Math.abs(change) / most),
      make("span", {}, withRule(change)));
  });
  const { n, median, most: atMost } = found.random;
  const control = what === "heads" ? `A random head: median ${withRule(median)} of ${n} heads.`
    : n ? "A random edge of another head, at least half as heavy as this head\u2019s heaviest: "
      + `median ${withRule(median)}, at most ${withRule(atMost)} (${n} edges).` : "No other head has an edge as heavy.";
  $("ranking").dataset.of = mine;
  $("ranking").replaceChildren(make("ol", {}, ...rows), make("p", { class: "control" }, control));
}
function interval(k, n) { // Wilson's, 95%
  if (!n) return "";
  const z = 1.96, p = k / n, middle = (p + z * z / (2 * n)) / (1 + z * z / n),
    half = z * Math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n);
  return ` (${Math.round(100 * (middle - half))} to ${Math.round(100 * (middle + half))}%)`;
}
async function count() {
  const of = JSON.stringify(changes()) + state.text,
    t = await longer("count", { sentences: RUN.sentences, text: state.text, output: shown.before.output,
    changes: changes() });
  if (!t) return;
  const swapped = Object.entries(t.swaps).sort((a, b) => b[1] - a[1]).slice(0, 6);
  const nth = (rank, stack) => rank < 0 ? `\u201c${stack === "decoder" ? "start" : "end"}\u201d` // the key that is no word
    : `the ${["word that it looks at most", "second word", "third word"][rank] ?? `${rank + 1}th word`}`;
  const told = t.edges.map(({ token, stack, rank, toRank }) => `In each sentence with \u201c${wordOf(token)}\u201d: its edge `
    + `to ${nth(rank, stack)} ${toRank === null ? "is cut" : `is redirected to ${nth(toRank, stack)}`}. `);
  if (t.edges.some(({ rank, toRank }) => rank < 0 || toRank < 0)) told.push("Only edges to words are found again.");
  const pair = (name, value) => [make("dt", {}, name), make("dd", {}, value)];
  $("counted").dataset.of = of;
  $("counted").replaceChildren(make("p", { class: "note" }, ...told),
    make("dl", {}, ...pair("sentences where it applies", `${t.n} of ${t.read}`),
    ...pair("translation changes", `${t.changed} of ${t.n}${interval(t.changed, t.n)}`),
      ...pair("same change, random head", t.control === null ? "no other head to compare with"
        : `${t.control} of ${t.n}${interval(t.control, t.n)}`),
      ...swapped.flatMap(([swap, n]) => pair(swap, String(n)))), make("ul", {}, ...t.examples.slice(0, 3)
    .map(({ sentence, before, now }) => make("li", {}, make("b", {}, sentence), ` ${before} \u2192 ${now}`))));
}

// --- the address, files, Python ------------------------------------------------------------------------------------
const shortHead = ({ stack, layer, head }) => `${stack[0]}${layer + 1}.${head === null ? "*" : head + 1}`;
function longHead(short) {
  const [, s, layer, head] = /^([edc])(\d+)\.(\d+|\*)$/.exec(short);
  const stack = { e: "encoder", d: "decoder", c: "cross" }[s], { n_layers, n_heads } = RUN.config.model;
  if (!(layer >= 1 && layer <= n_layers && (head === "*" || head >= 1 && head <= n_heads))) throw new RangeError(short);
  return { stack, layer: layer - 1, head: head === "*" ? null : head - 1 };
}
function address() {
  const chosen = state.chosen && { head: shortHead(parsed(state.chosen)) };
  const parts = new URLSearchParams({ s: state.text, ...chosen });
  const off = Object.entries(state.heads).map(([name, how]) => `${shortHead(parsed(name))}:${how}`);
  const edges = state.edges.map(e => {
    const places = e.to === null ? [e.query, e.key] : [e.query, e.key, e.to];
    return `${shortHead(e)}:${places.map(place => place + 1).join("-")}`;
  });
  const optional = {
    beams: state.beams > 1 && state.beams, hold: state.hold && 1, off: off.join(" "), edges: edges.join(" "),
    word: state.word !== null && state.word + 1, relative: state.relative && 1, above: state.above && 1 };
  for (const [name, value] of Object.entries(optional)) if (value) parts.set(name, value);
  return `#${parts}`;
}
function writeAddress() {
  try { history.replaceState(null, "", address()); } catch { /* a frame without an address */ } }
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.has("s")) return false;
  const list = name => (parts.get(name) ?? "").split(" ").filter(Boolean).map(one => one.split(":"));
  try {
    const named = ({ stack, layer, head }) => `${stack}.${layer}.${head}`;
    Object.assign(state, { text: parts.get("s"), beams: parts.get("beams") === "4" ? 4 : 1, hold: parts.has("hold"),
      relative: parts.has("relative"), above: parts.has("above"),
      word: parts.has("word") ? parts.get("word") - 1 : null, edge: null,
      chosen: parts.has("head") ? named(longHead(parts.get("head"))) : null,
        heads: Object.fromEntries(list("off").filter(([, how]) => how !== "mean" || offsets || RUN.averages === false)
          .map(([head, how]) => [named(longHead(head)), how])),
      edges: list("edges").map(([head, places]) => { const [query, key, to] = places.split("-");
        return { ...longHead(head), query: query - 1, key: key - 1, to: to === undefined ? null : to - 1 }; }) });
  } catch { return false; }
  return true;
}
function table() {
  const { stack } = parsed(state.chosen), { queries, keys } = sides(stack),
    quoted = text => `"${text.replaceAll('"', '""')}"`;
  const rows = queries.flatMap((query, q) =>
    keys.map((key, k) => [q + 1, quoted(query), k + 1, quoted(key), shown.now.maps[state.chosen][q][k] ?? "",
    shown.before.maps[state.chosen][q]?.[k] ?? ""].join(",")));
  return ["query_position,query,key_position,key,weight_now,weight_as_trained", ...rows].join("\n") + "\n";
}
function whole() {
  const told = ({ text, output, src, written, next, maps }) =>
    ({ translation: text, ids: output, source_tokens: src, tokens: written,
    log_probabilities: next.map(({ log }) => log), attention: Object.fromEntries(Object.entries(maps)
    .map(([name, rows]) => [name, rows.map(row => Array.from(row))])) });
  return JSON.stringify({ run: RUN.name, sentence: state.text, beam_size: state.beams, held: state.hold,
    interventions: changes(), counted_from: 0, as_trained: told(shown.before), now: told(shown.now) }, null, 1);
}
function picture() { // the figure as a PNG, twice as fine
  const svg = $("figure").firstChild, image = new Image(),
    canvas = make("canvas", { width: 2 * svg.getAttribute("width"), height: 2 * svg.getAttribute("height") });
  image.onload = () => { canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => save(blob, "image/png", fileName("png"))); };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
}
const fileName = ending => `${RUN.name}-${state.chosen.replace(/\.(\d+)/g, (_, n) => `-${+n + 1}`)}.${ending}`;
const TAKE = {
  svg: () => save(standalone($("figure").firstChild), "image/svg+xml", fileName("svg")), png: picture,
  csv: () => save(table(), "text/csv", fileName("csv")), json: () => save(whole(), "application/json",
    `${RUN.name}.json`),
};
function python() {
  const text = JSON.stringify, mean = Object.values(state.heads).includes("mean"),
    lines = ["from annotated_transformer.decoding.translation import load",
    `from annotated_transformer.inside.intervening import intervening${mean ? ", mean_outputs" : ""}`];
  const own = RUN.averages === false ? RUN.sentences.slice(0, 100) : RUN.given ? RUN.sentences : null;
  if (mean && !own) lines.push("from annotated_transformer.inside.explore import sentences");
  lines.push("", `t = load(${text(RUN.path ?? RUN.name)})`, `line = ${text(state.text)}`);
  if (mean) lines.push(...(own ? ["means = mean_outputs(t, [", ...own.map(each => `    ${text(each)},`), "])"]
    : ["means = mean_outputs(t, sentences(t))"]));
  const head = name => { const { stack, layer, head } = parsed(name); return `"${stack}", ${layer}, ${head}`; };
  const values = Object.entries(state.heads).map(([name, how]) => {
    const place = head(name);
    return `(${place}): ${how === "mean" ? `means[${place}]` : "0.0"}`;
  });
  lines.push(`heads = {${values.join(", ")}}`);
  const edges = state.edges.map(e => {
    const place = `("${e.stack}", ${e.layer}, ${e.head ?? "None"}, ${e.query}, ${e.key})`;
    return `    ${place}: ${e.to ?? '"cut"'},  # ${edgeText(e)}`;
  });
  lines.push(...(edges.length ? ["edges = {", ...edges, "}"] : ["edges = {}"]));
  lines.push("with intervening(t.model, heads, edges):");
  const held = shown.before.output.filter(id => id !== END).join(", ");
  if (state.hold) lines.push(`    best = t.n_best([line], n=1, beam_size=1, prefix=[[${held}]])[0][0]`,
    "    print(best.log_probabilities)");
  else lines.push(`    print(t.translate(line, beam_size=${state.beams}))`);
  return lines.join("\n");
}
function renderPython() { $("python").textContent = python(); }
// --- examples, and the beginning -----------------------------------------------------------------------------------
function begin(preset, again = true) {
  const set = () => Object.assign(state, { text: preset.text, heads: {}, edges: [], edge: null, word: null,
    hold: false, chosen: preset.chosen ?? null });
  task = preset;
  $("text").value = preset.text;
  again ? change(set) : set();
}
function renderTask() {
  const mine = task?.task && task.text === state.text;
  $("task").hidden = !mine;
  [...$("presets").children].forEach((button, i) => button.setAttribute("aria-pressed",
    String(!!mine && RUN.presets[i] === task)));
  if (!mine) return;
  const reached = task.goal && shown.now.text === task.goal && changed();
  const { heads = {}, edges = [] } = task.answer ?? {};
  const answer = () => change(() => Object.assign(state, { heads: { ...heads }, edges: [...edges], edge: null }));
  const asked = $("task").contains(document.activeElement);
  $("task").replaceChildren(reached ? `\u2713 ${task.done}` : task.task,
    ...(task.answer && !reached ? [make("button", { type: "button", onclick: answer }, "Show me")] : []));
  if (asked) $("task").focus();
}
function introduce() {
  const { n_layers, n_heads, d_model } = RUN.config.model, { src, tgt } = RUN.config.data ?? {};
  const language = code => {
    try { return new Intl.DisplayNames("en", { type: "language" }).of(code); } catch { return code; }
  };
  $("text").lang = src ?? "";
  const languages = src && tgt ? `${language(src)} to ${language(tgt)}, ` : "";
  $("about").textContent = `a Transformer while it translates: \u201c${RUN.name}\u201d, ${languages}`
    + `${n_layers} layer${n_layers > 1 ? "s" : ""} of ${n_heads} heads, ${d_model} wide`;
  $("presets").replaceChildren(...RUN.presets.map(preset =>
    make("button", { type: "button", onclick: () => begin(preset) }, preset.title)));
  buildGrids();
}
async function opened(files) {
  const answer = await ask("open", { config: RUN.config, ...files });
  offsets = answer.offsets;
  memory.clear();
  introduce();
}
async function average() { // for a head's mean, and for what is above it
  const averages = RUN.sentences.length && await longer("average", { sentences: RUN.sentences.slice(0, 100) });
  if (!averages) return;
  offsets = averages.offsets;
  const at = document.activeElement?.dataset?.head;
  buildGrids();
  if (!shown || Object.values(state.heads).includes("mean")) await update();
  else render();
  if (at) document.querySelector(`[data-head="${at}"]`)?.focus({ preventScroll: true });
}
async function openFolder({ target: { files } }) {
  const find = names => [...files].find(file => names.includes(file.name)), read = file => file?.arrayBuffer(),
    config = find(["config.json"]);
  const vocabulary = find(["vocabulary.model", "vocabulary.json"]),
    source = find(["src_vocabulary.model", "src_vocabulary.json"]), weights = find(["averaged.safetensors"]);
  if (!config || !vocabulary
    || !weights) return say("Not a run's folder: it needs config.json, averaged.safetensors and a vocabulary.");
  const before = RUN;
  try {
    const parts = JSON.parse(await config.text()), named = async file => file && { name: file.name,
      content: await read(file) };
    const name = config.webkitRelativePath.split("/").at(-2) || "run";
    RUN = { ...RUN, name, path: name, config: parts, averages: false,
      presets: RUN.presets.map(({ title, text, task }) => ({ title, text, task })) };
    await opened({ vocabulary: await named(vocabulary), sourceVocabulary: await named(source),
      weights: await read(weights), averages: null });
    task = null;
    Object.assign(state, { heads: {}, edges: [], edge: null, word: null, chosen: null });
    past.length = future.length = 0;
    await update();
    await average();
  } catch (error) { RUN = before; say(error.message); }
}
async function start() {
  document.documentElement.classList.toggle("framed", parent !== window);
  $("form").addEventListener("submit", event => { event.preventDefault(); setText($("text").value.trim()); });
  $("beams").addEventListener("change", () => { state.beams = +$("beams").value; update(); });
  $("hold").addEventListener("change", () => { state.hold = $("hold").checked; update(); });
  for (const name of ["relative", "above"]) $(name)
    .addEventListener("change", () => { state[name] = $(name).checked; writeAddress(); renderGrids(); renderHead(); });
  $("cut").addEventListener("click",
    () => setEdge(...state.edge, fateOf(...state.edge) === undefined ? null : undefined));
  $("to").addEventListener("change", () => setEdge(...state.edge, $("to").value === "" ? undefined : +$("to").value));
  $("every").addEventListener("change", () => { state.every = $("every").checked; const fate = fateOf(...state.edge);
    if (fate !== undefined) setEdge(...state.edge, fate); });
  $("undo").addEventListener("click", () => travel(past, future));
  $("redo").addEventListener("click", () => travel(future, past));
  $("clear").addEventListener("click", () => change(() => Object.assign(state, { heads: {}, edges: [], edge: null })));
  $("rank-heads").addEventListener("click", () => rank("heads"));
  $("rank-edges").addEventListener("click", () => rank("edges"));
  $("count").addEventListener("click", count);
  $("stop").addEventListener("click", () => { stopped = true; ask("stop"); });
  $("link").hidden = location.protocol === "about:"; // a frame without an address
  $("link").addEventListener("click", () => copy(location.href.split("#")[0] + address(), $("link")));
  $("copy").addEventListener("click", () => copy(python(), $("copy")));
  $("folder").addEventListener("change", openFolder);
  document.querySelectorAll("[data-take]")
    .forEach(button => button.addEventListener("click", TAKE[button.dataset.take]));
  $("switch").addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key], all = hows();
    if (!step) return;
    event.preventDefault();
    setHead(state.chosen, all[(all.indexOf(state.heads[state.chosen] ?? "on") + step + all.length) % all.length]);
  });
  addEventListener("keydown", event => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && event.target.id !== "text") {
      event.preventDefault(); event.shiftKey ? travel(future, past) : travel(past, future); }
  });
  addEventListener("hashchange",
    () => { if (location.hash !== address() && readAddress()) {
      $("text").value = state.text;
      $("beams").value = state.beams;
      update();
    } });
  addEventListener("resize", () => shown && renderHead());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && render());
  pointAtFigure();
  say("Loading the model \u2026");
  const named = (id, name) => name && { name, content: bytes(id) };
  try {
    await opened({ vocabulary: named("vocabulary", RUN.vocabulary),
      sourceVocabulary: named("source-vocabulary", RUN.sourceVocabulary), weights: bytes("weights"),
      averages: RUN.averages });
  } catch (error) { return say(error.message); }
  if (!readAddress()) begin(RUN.presets[0] ?? { text: RUN.sentences[0] ?? "" }, false);
  $("text").value = state.text;
  $("beams").value = state.beams;
  await update();
  if (RUN.averages === false) await average();
}
start();
