// The playground: a setting is trained by training.js in a worker, and drawn as it learns.
"use strict";
const GIVEN = JSON.parse($("given").textContent); // { chapters, ending, expected }: where links lead; what records say
const SENTENCES = [
  ["now the clever woman opens a small window .", "jetzt macht die kluge Frau ein kleines Fenster auf ."],
  ["the man buys a cup because it is red .", "der Mann kauft eine Tasse , weil sie rot ist ."],
  ["the man buys a hat because it is red .", "der Mann kauft einen Hut , weil er rot ist ."],
  ["the king sees the woman .", "der K\u00f6nig sieht die Frau ."],
  ["the woman sees the king .", "die Frau sieht den K\u00f6nig ."],
  ["because the dog can sleep , it is clever .", "weil der Hund schlafen kann , ist er klug ."]];
const IT = 1, KING = 3, THINGS = "hat ball table letter lamp cup flower door book picture bed window".split(" ");
const NUMBERS = { d_model: ["Width", [16, 32, 48, 64, 96]], n_layers: ["Layers", [1, 2, 3]],
  n_heads: ["Heads", [1, 2, 4, 8]], rate: ["Rate \u00d7", [0.25, 0.5, 1, 1.5, 2, 3]], seed: ["Seed", [1, 2, 3, 4, 5]] };
// what is switched: its name, without it, why the paper has it, where the book tells more
const SWITCHES = {
  positions: ["Positions", "no positions",
    "Attention sees a set of words; waves of many lengths tell it where each one stands.", "model/embedding"],
  scale: ["Division by \u221ad_k", "no \u221ad_k",
    "Dot products grow with a head\u2019s width; undivided, the softmax picks one word and hardly learns.",
    "model/attention"],
  heads: ["Several heads", "one head",
    "Each head looks at one place; a single one has to average over all of them.", "model/attention"],
  feed_forward: ["Feed-forward network", "no feed-forward",
    "After the words have exchanged what they know, each is worked on by itself.", "model/feed_forward"],
  residual: ["Residual connections", "no residuals",
    "A sub-layer adds to what came in, so that gradients reach the bottom.", "model/layers"],
  norm: ["Layer normalisation", "no normalisation",
    "It keeps what each layer reads on one scale.", "model/layers"],
  post_norm: ["Normalised after adding", "pre-norm",
    "The paper normalises after each sub-layer; most later models do so before it.", "model/layers"],
  warmup: ["Warm-up", "constant rate",
    "The rate climbs first, because Adam\u2019s first steps rest on few gradients. Off is a constant rate at the peak: "
    + "faster at first; it fails only at a higher rate (try 1.5).", "training/optimizer"],
  causal_mask: ["Mask of the future", "no mask",
    "Each word is to be predicted from earlier words, for no others exist when the model translates.",
    "model/attention"],
  cross_attention: ["Attention to the source", "no attention to the source",
    "Through it the decoder reads the English.", "model/layers"],
  encoder: ["Encoder", "no encoder",
    "English words read one another before the decoder reads them. Off: it reads bare words.", "model/layers"],
  embedding_scale: ["\u221ad_model on embeddings", "no \u221ad_model",
    "Embeddings are drawn small; the factor lifts them to the size of the waves.", "model/embedding"],
  label_smoothing: ["Label smoothing", "no smoothing",
    "A tenth of the probability goes to all words, so that the model does not grow too sure.",
    "training/regularization"],
  small_draw: ["Small first weights", "plain Xavier weights",
    "Ours, not the paper\u2019s: what a sub-layer adds begins small, which does a part of the normalisation\u2019s work.",
    "model/transformer"],
};
const percent = (n, of) => `${Math.round(100 * n / of)}%`, seconds = s => `${Math.round(s)} seconds`;
const share = ({ right, of }) => `${right} of ${of}`, capital = text => text[0].toUpperCase() + text.slice(1);
// { id, title, setting, until (updates), enough (share), say: what to look at, seen(report, run), ask }
const TASKS = [
  { id: "learn", title: "Train it", setting: {}, until: 1500, enough: 0.95,
    say: "It begins with random numbers and sees nothing but pairs of sentences.",
    seen: r => r.right < 0.95 * r.of ? `${share(r)} are right after ${r.step} updates; usually it learns faster.`
      : `After ${seconds(r.seconds)} and ${(64 * r.step).toLocaleString("en")} pairs, ${share(r)} sentences that it `
        + "never trained on come out exactly right.",
    ask: "A cup is \u201csie\u201d and a hat is \u201cer\u201d. Nobody said so. Where does the model keep it?" },
  { id: "mask", title: "The lowest loss that knows nothing", setting: { causal_mask: false }, until: 400,
    say: "Without the mask the decoder may look at the very word that it is to predict. Watch the loss.",
    seen: r => `The loss is ${r.loss.toFixed(2)}, ${lowest(r) ? "the lowest of all your runs" : "low"}, and ${share(r)} `
      + "sentences are right. It copies the next word instead of predicting it.",
    ask: "When it translates there is no next word to copy. What does it write, and why?" },
  { id: "positions", title: "The king and the woman", setting: { positions: false }, until: 400,
    say: "Without positions a sentence is a bag of words. Watch who sees whom.",
    seen: r => r.german[KING].join() === r.german[KING + 1].join()
      ? `\u201cThe king sees the woman\u201d and its reverse became the same sentence: \u201c${sentence(r.german[KING])}\u201d`
      : `It tells the two sentences apart here, by luck; ${share(r)} sentences are right.`,
    ask: "Some sentences come out right all the same. What have they in common?" },
  { id: "scale", title: "One wide head", setting: { n_heads: 1, scale: false }, until: 400,
    say: "One head of width 32, and the scores are not divided by \u221a32.",
    seen: r => `${share(r)} are right after ${r.step} updates${beside(r)}. Undivided scores are large: the softmax picks one `
      + "word from the start, and hardly any gradient comes through.",
    ask: "Take four heads again and leave the division out. Why does it matter less now?" },
  { id: "residual", title: "Nothing moves", setting: { residual: false }, until: 400,
    say: "Each sub-layer now replaces what came in instead of adding to it.",
    seen: r => r.right < 0.05 * r.of ? `After ${r.step} updates the loss is ${r.loss.toFixed(2)} and ${share(r)} are right: it `
      + "has learned which words are frequent, and no more." : `${share(r)} are right${beside(r)}: it learns late.`,
    ask: "Take one layer instead of two. Does it still stand still?" },
  { id: "cross", title: "Fluent about something else", setting: { cross_attention: false }, until: 400,
    say: "The decoder cannot see the English any more. Read what it writes.",
    seen: r => `It translates \u201c${sentence(SENTENCES[KING][0].split(" "))}\u201d as \u201c${sentence(r.german[KING])}\u201d `
      + `That may be German, but it is no translation: ${share(r)} are right.`,
    ask: "What can it know about a sentence that it has never read?" },
  { id: "cut", title: "Cut what you have just trained", setting: { d_model: 64, n_layers: 1, n_heads: 2 }, until: 500,
    say: "One wide layer of two heads. When it has learned, we cut the edge from \u201cit\u201d to its noun in one head.",
    seen: () => "", ask: "Looking is not using: try the other head, and other sentences. When does the pronoun stay?" },
];

// --- a setting, its name and its address ---------------------------------------------------------------------------
const START_AT = Object.fromEntries(Object.keys(NUMBERS).map(name => [name, USUAL[name]]));
let state = { ...START_AT, off: [] }, task = TASKS[0];
const isOff = name => name === "heads" ? state.n_heads === 1 : state.off.includes(name);
function setting({ off, ...numbers } = state) { // as the trainer takes it
  const switched = off.map(name => name === "post_norm" ? ["pre_norm", true]
    : name === "label_smoothing" ? [name, 0] : [name, false]);
  return { ...numbers, d_ff: 4 * numbers.d_model, ...Object.fromEntries(switched) };
}
function stateOf({ d_model, n_layers, n_heads, ...parts }) { // of a task
  const numbers = Object.entries({ d_model, n_layers, n_heads }).filter(([, value]) => value);
  return { ...START_AT, ...Object.fromEntries(numbers), off: Object.keys(parts) };
}
function nameOf({ off, n_heads, d_model, n_layers, rate, seed }) {
  const parts = [d_model !== USUAL.d_model && `width ${d_model}`,
    n_layers !== USUAL.n_layers && `${n_layers} layer${n_layers > 1 ? "s" : ""}`,
    n_heads !== USUAL.n_heads && (n_heads === 1 ? "one head" : `${n_heads} heads`),
    ...off.map(name => SWITCHES[name][1]), rate !== 1 && `rate \u00d7 ${rate}`, seed !== 1 && `seed ${seed}`];
  return parts.filter(Boolean).join(", ") || "the paper\u2019s model";
}
function address() {
  const parts = new URLSearchParams(task ? { task: task.id } : {});
  for (const name of Object.keys(NUMBERS)) if (state[name] !== (task ? stateOf(task.setting) : START_AT)[name]) {
    parts.set(name, state[name]);
  }
  if (!task && state.off.length) parts.set("off", state.off.join(" "));
  return `#${parts}`;
}
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  task = TASKS.find(({ id }) => id === parts.get("task")) ?? (location.hash.length > 1 ? null : TASKS[0]);
  state = task ? stateOf(task.setting) : { ...START_AT, off: (parts.get("off") ?? "").split(" ").filter(name => SWITCHES[name]
    && name !== "heads") };
  for (const name of Object.keys(NUMBERS)) if (+parts.get(name) > 0) state[name] = +parts.get(name);
}

// --- running -------------------------------------------------------------------------------------------------------
const ask = connect($("trainer").textContent, "Training", () => new Training());
const still = matchMedia("(prefers-reduced-motion: reduce)");
let runs = [], run = null, turn = 0, running = false, asleep = false, chosen = null, spoken = 0;

async function begin(go) {
  const mine = ++turn;
  running = asleep = false;
  runs = runs.filter(({ reports }) => reports.length > 1).slice(-5);
  run = { state: { ...state, off: [...state.off] }, task, name: nameOf(state), reports: [], failed: null };
  run.colour = [1, 2, 3, 4, 5, 6].find(n => runs.every(({ colour }) => colour !== n));
  runs.push(run);
  try { history.replaceState(null, "", address()); } catch { /* a frame without an address */ }
  renderSetting();
  tell();
  try {
    const first = await ask("begin", { setting: setting(), shown: SENTENCES, mapped: IT });
    if (mine !== turn) return;
    show(first);
    if (go) await train();
  } catch (error) { if (mine === turn) fail(error.message); }
}
async function train() {
  const mine = ++turn, own = run, { reports } = own, until = own.task && last(own).step < own.task.until ? own.task.until : null;
  running = true;
  renderButtons();
  try {
    const end = await ask("train", { until: until ?? Infinity }, report => {
      if (mine !== turn) return;
      show(report);
      if (until && reached(own)) ask("stop");
    });
    if (mine !== turn || !end) return;
    running = false;
    show(end);
    if (until && (end.step >= until || reached(own))) await close(own);
    else if (!asleep) say(told(end));
  } catch (error) { if (mine === turn) fail(error.message); }
}
const last = ({ reports }) => reports.at(-1), told = r => `After ${r.step} updates ${share(r)} sentences are exactly right. `
  + `Loss ${r.loss.toFixed(2)}.`;
const reached = ({ task, reports }) => !!task?.enough && reports.at(-1).right >= task.enough * reports.at(-1).of;
const lowest = r => runs.every(other => other === run || !(last(other)?.loss < r.loss));
function beside(r) { // the paper's model after as many updates, where it ran here
  const paper = runs.find(({ name }) => name === nameOf({ ...START_AT, off: [] }));
  const then = paper?.reports.find(({ step }) => step >= r.step) ?? (paper && last(paper));
  return then ? `, ${share(then)} with the paper\u2019s model (${then.step} updates)` : "";
}
function fail(message) {
  running = false;
  run.failed = message;
  renderButtons();
  tell(make("p", {}, make("b", {}, "It went wrong. "), message + ". ",
    run.reports.length ? "The rate is too high for this setting: lower it, or switch the warm-up on." : ""));
}
function say(text) { // for a screen reader, now and then
  $("said").textContent = text;
  spoken = performance.now();
}
function sleep() { // nobody looks
  const hidden = document.hidden || outside;
  if (hidden && running) { asleep = true; ask("stop"); }
  if (!hidden && asleep) {
    asleep = false;
    tell(make("p", {}, "It slept while nobody looked, and goes on from where it was."));
    train();
  }
}
let outside = false;

// --- what is shown -------------------------------------------------------------------------------------------------
function show(report) {
  run.reports.push(report);
  const { right, of, step, loss, seconds, size } = report;
  $("numbers").hidden = !step;
  $("numbers").replaceChildren(make("b", {}, percent(right, of)), ` of ${of} unseen sentences exactly right`,
    make("span", {}, `loss ${loss.toFixed(2)}`), make("span", {}, `${step} updates`),
    make("span", {}, `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`));
  if (running && performance.now() - spoken > 5000) say(told(report));
  if (step >= 400 && !run.task && !run.noted && right < 0.05 * of) {
    run.noted = true;
    tell(make("p", {}, make("b", {}, `${step} updates, and it has not learned. `), state.off.length || state.n_heads === 1
      ? "That is the answer to your question, or a matter of the rate and the seed: try others."
      : "Lower the rate, or take another seed."));
  }
  renderButtons();
  renderSentences(report);
  renderCurves();
  renderMaps(report);
  document.body.dataset.ready = `${turn}.${run.reports.length}`;
}
function renderButtons() {
  const begun = (last(run)?.step ?? 0) > 0;
  $("go").textContent = running ? "Pause" : begun ? "Go on" : "Train";
  $("go").disabled = run.failed !== null;
  $("again").hidden = !begun && !run.failed;
  const { right, of } = last(run) ?? { right: 0, of: 1 }, unlike = run.state.off.filter(name => UNLIKE.includes(name));
  $("open").disabled = running || right < 0.3 * of || unlike.length > 0;
  $("own-note").textContent = unlike.length ? "The live page runs the paper\u2019s model: switch its parts on again, and train."
    : right < 0.3 * of ? "When it has learned, type a sentence of its words, cut an edge, switch heads off, and count over 200 "
      + "sentences." : "Its weights go to the live page, in this file: type a sentence of its words, cut an edge, switch heads off.";
  $("weights").disabled = $("setting").disabled = !begun;
}
const UNLIKE = ["positions", "scale", "feed_forward", "residual", "norm", "causal_mask", "cross_attention", "encoder",
  "embedding_scale"]; // what the live page's engine does not leave out
const sentence = words => written(words) || "(nothing)";
let turned = []; // for each sentence, which words were right before
function renderSentences({ german }) {
  $("sentences").replaceChildren(...SENTENCES.map(([english, wanted], i) => {
    const right = german[i].map((word, j) => word === wanted.split(" ")[j]), done = german[i].join(" ") === wanted;
    const words = german[i].flatMap((word, j) => [/^[.,]$/.test(word) ? "" : " ",
      make("span", { class: !right[j] ? "wrong" : turned[i]?.[j] ? "right" : "right fresh" }, j ? word : capital(word))]);
    turned[i] = right;
    return make("li", { class: done ? "done" : false }, make("span", { class: "english" }, written(english.split(" "))),
      make("span", { class: "german", lang: "de" }, ...(words.length ? words : ["\u2014"])),
      done && make("span", { class: "hidden" }, "exactly right"));
  }));
}
function chart(place, what, most, value, marks, floor) {
  const W = Math.max(160, place.clientWidth), H = 190, left = 38, bottom = 24, top = 10, right = 8;
  const end = Math.max(300, ...runs.map(other => last(other)?.step ?? 0));
  const x = step => left + (W - left - right) * step / end, y = v => top + (H - top - bottom) * (1 - Math.min(v, most) / most);
  const words = (text, x, y, anchor) => make("text", { x, y, "text-anchor": anchor, fill: "var(--muted)" }, text);
  const now = last(run), line = (d, more) => make("path", { d, fill: "none", ...more });
  place.replaceChildren(make("svg", { width: W, height: H, role: "img", "font-size": 12,
    "aria-label": `${what} after ${now.step} updates: ${marks.find(([, text]) => text)[2](value(now))}` },
    ...marks.flatMap(([v, text]) => [line(`M${left} ${y(v)}H${W - right}`, { stroke: "var(--rule)" }),
      words(text, left - 6, y(v) + 4, "end")]),
    words("0", left, H - 6, "middle"), words(`${end} updates`, W - right, H - 6, "end"),
    floor && line(`M${left} ${y(floor)}H${W - right}`, { stroke: "var(--ink)", "stroke-dasharray": "1 4" }),
    floor && words(`floor ${floor.toFixed(2)}`, W - right, y(floor) + 14, "end"),
    ...runs.filter(({ reports }) => reports.length > 1).map(({ reports, colour }) =>
      line(`M${reports.map(report => `${x(report.step).toFixed(1)} ${y(value(report)).toFixed(1)}`).join("L")}`,
        { class: `line run${colour}`, "stroke-width": reports === run.reports ? 3 : 1.6, "stroke-linejoin": "round" }))));
}
function renderCurves() {
  const e = setting().label_smoothing ?? USUAL.label_smoothing, V = last(run).words, rest = e / V, mine = 1 - e + rest;
  const floor = e && -mine * Math.log(mine) - (V - 1) * rest * Math.log(rest); // the entropy of what is aimed at
  const rate = value => percent(value, 1), number = value => value.toFixed(2);
  chart($("curve"), "Unseen sentences exactly right", 1, ({ right, of }) => right / of, [0, 0.5, 1].map(v => [v, rate(v), rate]));
  chart($("loss"), "Loss", 6, ({ loss }) => loss, [0, 2, 4, 6].map(v => [v, String(v), number]), floor);
  const ran = runs.filter(({ reports }) => last({ reports })?.step);
  $("runs").hidden = !ran.length;
  $("runs").replaceChildren(...ran.reverse().map(other => make("li", {},
    make("svg", { width: 26, height: 8, "aria-hidden": true }, make("path", { d: "M1 4H25", "stroke-width": other === run ? 3 : 1.6,
      class: `line run${other.colour}` })), ` ${percent(last(other).right, last(other).of)} ${other.name}`)),
    floor > 0 && make("li", { class: "note" }, `Label smoothing keeps every loss above its floor, ${floor.toFixed(2)}.`));
}
function renderMaps({ maps }) {
  const [english, german] = SENTENCES[IT].map(side => side.split(" ")), it = english.indexOf("it"), noun = english.indexOf("cup");
  const heads = Object.entries(maps).sort().flatMap(([place, list]) => list.map((rows, h) => ({ name: `${place}.${h}`, rows,
    stack: place.split(".")[0], title: `${capital(place.split(".")[0])}, layer ${+place.split(".")[1] + 1}, head ${h + 1}` })));
  const looking = heads.filter(({ stack }) => stack === (maps["encoder.0"] ? "encoder" : "decoder"));
  const best = looking.reduce((a, b) => b.rows[it][noun] > a.rows[it][noun] ? b : a);
  if (!heads.some(({ name }) => name === chosen?.name)) chosen = null;
  const before = chosen && heads.find(({ name }) => name === chosen.name); // stays unless another is clearly sharper
  const one = before && (chosen.kept || best.rows[it]?.[noun] - before.rows[it]?.[noun] < 0.15) ? before : best;
  chosen = { name: one.name, kept: !!chosen?.kept };
  const keys = one.stack === "decoder" ? ["start", ...german] : [...english, "end"],
    queries = one.stack === "encoder" ? keys : [...german, "end"];
  const svg = drawHead({ queries, keys, colour: `var(--${one.stack})`, same: one.stack === "encoder", label: one.title,
    fate: () => undefined, room: Math.min(620, $("map").clientWidth), strength: (q, k) => one.rows[q]?.[k] ?? 0,
    weight: (q, k) => one.rows[q]?.[k] ?? null });
  const looks = one.stack === "encoder" ? `\u201cit\u201d looks at \u201ccup\u201d with ${one.rows[it][noun].toFixed(2)}` : "";
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${one.title}. ${looks}`);
  svg.querySelectorAll("[tabindex], [role]").forEach(node => { node.removeAttribute("tabindex"); node.removeAttribute("role"); });
  $("map").replaceChildren(svg);
  $("where").textContent = `${one.title}${looks && `: ${looks}`}`;
  const names = heads.map(({ name }) => name).join();
  if ($("thumbs").dataset.names !== names) {
    $("thumbs").dataset.names = names;
    $("thumbs").replaceChildren(...heads.map(({ name, title, stack }) => make("button", { type: "button", role: "radio",
      "aria-label": title, title, "data-name": name, "data-stack": stack, onclick: () => choose(name), onkeydown: chooseNext },
      make("canvas", { "aria-hidden": true }))));
  }
  const style = getComputedStyle(document.documentElement);
  heads.forEach(({ name, rows, stack }, i) => {
    const button = $("thumbs").children[i];
    button.setAttribute("aria-checked", name === one.name);
    button.tabIndex = name === one.name ? 0 : -1;
    paint(button.firstChild, rows, style.getPropertyValue(`--${stack}`).trim());
  });
}
function choose(name) {
  chosen = { name, kept: true };
  renderMaps(last(run));
}
function chooseNext(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], all = [...$("thumbs").children];
  if (!step) return;
  event.preventDefault();
  const to = all[(all.indexOf(event.target) + step + all.length) % all.length];
  choose(to.dataset.name);
  to.focus();
}

// --- tasks and switches --------------------------------------------------------------------------------------------
function tell(...parts) { // no part: what to look at, where there is a task
  const shown = parts.length || (task && task !== TASKS[0]) ? [task && make("h2", {}, task.title),
    ...(parts.length ? parts : [make("p", {}, task.say)])].filter(Boolean) : [];
  $("told").hidden = !shown.length;
  $("told").replaceChildren(...shown);
}
function start(next, go = true) {
  Object.assign(state, stateOf(next.setting));
  task = next;
  scrollTo({ top: 0, behavior: still.matches ? "auto" : "smooth" });
  return begin(go);
}
async function close(own) { // what was seen, a question, what comes next
  const report = last(own), next = TASKS[TASKS.indexOf(own.task) + 1];
  own.closed = true;
  const found = own.task.id === "cut" ? await cutting() : null;
  if (own !== run) return;
  const button = (text, act) => make("button", { type: "button", onclick: act }, text);
  tell(make("p", {}, found ? found.text : own.task.seen(report, own)), make("p", {}, make("i", {}, own.task.ask)),
    make("div", { class: "buttons" }, next && button(`Next: ${next.title}`, () => start(next)),
      found && button("Cut it yourself", () => lookInside(found.name)),
      own.task === TASKS[0] && button("Look inside it", () => lookInside())));
}
function flip(name) {
  if (name === "heads") state.n_heads = state.n_heads === 1 ? USUAL.n_heads : 1;
  else state.off = isOff(name) ? state.off.filter(other => other !== name) : [...state.off, name];
  changed();
}
function changed() { // by hand: no task any more
  task = null;
  begin(!still.matches);
}
function expectation(name) { // from the records; nothing where there are none
  const { updates, seeds, paper, off } = GIVEN.expected ?? {}, one = off?.[name];
  if (!one) return null;
  const range = ([a, b]) => Math.round(100 * a) === Math.round(100 * b) ? percent(a, 1) : `${Math.round(100 * a)} to ${percent(b, 1)}`;
  return make("p", { class: "expect" }, `To expect here: ${range(one.exact)} exactly right after ${updates} updates (${seeds} seeds; `
    + `the paper\u2019s model ${range(paper.exact)})`, one.loss ? `, loss ${one.loss.map(x => x.toFixed(2)).join(" to ")}` : "", ".");
}
function build() {
  $("tasks").replaceChildren(...TASKS.map(one => make("li", {}, make("button", { type: "button", "data-task": one.id,
    onclick: () => start(one) }, one.title))));
  $("numbered").replaceChildren(...Object.entries(NUMBERS).map(([name, [title, values]]) => make("label", {}, `${title} `,
    make("select", { id: name, onchange: event => { state[name] = +event.target.value; changed(); } },
      ...values.map(value => make("option", { value }, String(value)))))));
  $("switches").replaceChildren(...Object.entries(SWITCHES).map(([name, [title, , why, chapter]]) => make("li", {},
    make("label", {}, make("input", { type: "checkbox", role: "switch", id: `part-${name}`, onchange: () => flip(name) }), ` ${title}`),
    make("p", {}, why, GIVEN.chapters !== null && " ", GIVEN.chapters !== null && make("a", { target: "_blank", rel: "noopener",
      href: `${GIVEN.chapters}${chapter}${GIVEN.ending}` }, capital(chapter.split("/")[1].replace("_", " ")))), expectation(name))));
}
function renderSetting() {
  for (const [name, [, values]] of Object.entries(NUMBERS)) {
    if (!values.includes(state[name])) $(name).append(make("option", { value: state[name] }, String(state[name])));
    $(name).value = state[name];
  }
  for (const name of Object.keys(SWITCHES)) $(`part-${name}`).checked = !isOff(name);
  for (const button of $("tasks").querySelectorAll("button")) {
    button.setAttribute("aria-current", task?.id === button.dataset.task ? "true" : "false");
  }
  $("python").textContent = python();
}

// --- look inside, take along ---------------------------------------------------------------------------------------
const inside = () => JSON.parse($("inside").textContent).html; // the live page, which waits for its data
async function cutting() { // in which head does the pronoun hang on the edge from "it" to its noun?
  const exported = await ask("exported"), [, script] = /<script id="engine">([^]*?)<\/script>/.exec(inside());
  const engine = connect(script, "Engine", () => null);
  await engine("open", exported);
  const pronoun = words => words.find(word => ["er", "sie", "es"].includes(word));
  const counts = Array(run.state.n_heads).fill(0);
  let control = 0;
  for (const noun of THINGS) {
    const text = `the man buys a ${noun} because it is old .`, query = 6;
    const write = async edges => pronoun((await engine("translate", { text, changes: { edges } })).text.split(" "));
    const edge = (head, key) => ({ stack: "encoder", layer: 0, head, query, key, to: null });
    const before = await write([]);
    for (let head = 0; head < counts.length; head++) counts[head] += await write([edge(head, 4)]) !== before;
    control += await write([edge(null, 1)]) !== before;
  }
  const head = counts.indexOf(Math.max(...counts)), others = counts.filter((_, h) => h !== head);
  run.counts = { counts, control };
  return { name: `encoder.0.${head}`, text: `We cut \u201cit\u201d \u2192 its noun in ${THINGS.length} sentences. In head ${head + 1} the `
    + `pronoun changed in ${counts[head]}, in the other in ${others.join(", ")}; with \u201cit\u201d \u2192 \u201cman\u201d cut in both heads `
    + `instead, in ${control}.` };
}
async function lookInside(head) {
  const { config, vocabulary, weights, sentences } = await ask("exported"), html = inside();
  const base64 = buffer => btoa(Array.from(new Uint8Array(buffer), byte => String.fromCharCode(byte)).join(""));
  const text = written(SENTENCES[IT + 1][0].split(" ")), data = (id, content, type = "text/plain") =>
    `<script type="${type}" id="${id}">${content}</` + "script>";
  const about = { path: "playground", name: "yours", config, vocabulary: vocabulary.name, sourceVocabulary: null, sentences,
    averages: false, presets: [
      { title: "It, and the hat", text, chosen: head,
        task: "You have just trained this. Click the line from \u201cit\u201d to \u201chat\u201d and cut it: does \u201cer\u201d change?" },
      { title: "The king and the woman", text: written(SENTENCES[KING][0].split(" ")),
        task: "Which head tells the decoder who sees whom? Choose the verb, and ask \u201cWhich head?\u201d" }] };
  const whole = html.replace("<!--DATA-->", () => [data("run", JSON.stringify(about).replaceAll("<", "\\u003c"),
    "application/json"), data("weights", base64(weights)), data("vocabulary", base64(vocabulary.content))].join("\n"));
  const frame = make("iframe", { title: "Look inside the Transformer that you have trained", srcdoc: whole, class: "live" });
  $("inside-frame").replaceChildren(frame);
  $("own").scrollIntoView({ behavior: still.matches ? "auto" : "smooth" });
}
async function download() {
  const { vocabulary, weights } = await ask("exported");
  save(weights, "application/octet-stream", "averaged.safetensors");
  save(vocabulary.content, "application/json", vocabulary.name);
}
function python() { return ""; }

function startPage() {
  document.documentElement.classList.toggle("framed", parent !== window);
  build();
  readAddress();
  $("go").addEventListener("click", () => running ? ask("stop") : train());
  $("again").addEventListener("click", () => begin(true));
  $("open").addEventListener("click", () => lookInside());
  $("link").addEventListener("click", () => copy(location.href.split("#")[0] + address(), $("link")));
  $("copy").addEventListener("click", () => copy(python(), $("copy")));
  $("weights").addEventListener("click", download);
  $("setting").addEventListener("click", async () => save(JSON.stringify((await ask("exported")).config, null, 1),
    "application/json", "config.json"));
  addEventListener("hashchange", () => { if (location.hash !== address()) { readAddress(); begin(false); } });
  addEventListener("resize", () => run && last(run) && (renderCurves(), renderMaps(last(run))));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => last(run) && renderMaps(last(run)));
  document.addEventListener("visibilitychange", sleep);
  new IntersectionObserver(([entry]) => { outside = !entry.isIntersecting; sleep(); }).observe(document.body);
  begin(false);
}
startPage();
