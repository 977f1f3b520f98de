// The playground: training.js trains in a worker, and this draws what it reports. learning.js adds switches and tasks:
// it comes later in the file, so that training can begin before.
"use strict";
const CUP = 1, HAT = 2, KING = 3; // of SENTENCES, sentences.json
const NUMBERS = ["d_model", "n_layers", "n_heads", "rate", "seed"];
const PAPER = { ...Object.fromEntries(NUMBERS.map(name => [name, USUAL[name]])), off: [] };
const percent = (n, of) => `${Math.round(100 * n / of)}%`, share = ({ right, of }) => `${right} of ${of}`;
const capital = text => text.charAt(0).toUpperCase() + text.slice(1), last = ({ reports }) => reports.at(-1);
const isPaper = ({ state }) => JSON.stringify(state) === JSON.stringify(PAPER);
const sentence = words => written(words) || "(nothing)";

// --- running -------------------------------------------------------------------------------------------------------
const ask = connect($("trainer").textContent, "Training", () => new Training());
let state = structuredClone(PAPER), runs = [], run = null; // a run: { state, name, goal, reports, colour, failed }
let goal = { until: 1500, enough: 0.95 }; // a run pauses after so many updates, or with such a share exactly right
let more = null; // learning.js: name(state), begun(), shown(report), ended(), failed(message)
let turn = 0, running = false, asleep = false, away = false, chosen = null, spoken = 0, turned = [];

function setting({ off, ...numbers }) { // as the trainer takes it
  const switched = off.map(name => name === "post_norm" ? ["pre_norm", true]
    : name === "label_smoothing" ? [name, 0] : [name, false]);
  return { ...numbers, d_ff: 4 * numbers.d_model, ...Object.fromEntries(switched) };
}
async function begin(go) {
  const mine = ++turn;
  running = asleep = false;
  runs = runs.filter(({ reports }) => reports.length > 1);
  if (runs.length > 5) runs.splice(isPaper(runs[0]) ? 1 : 0, 1); // what the others are compared with stays
  const colour = [1, 2, 3, 4, 5, 6].find(n => runs.every(other => other.colour !== n));
  run = { state: structuredClone(state), name: more?.name(state) ?? "the paper\u2019s model", goal, colour, reports: [] };
  runs.push(run);
  turned = [];
  $("slept").hidden = true;
  more?.begun();
  try {
    const first = await ask("begin", { setting: setting(state), shown: SENTENCES, mapped: CUP });
    if (mine !== turn) return;
    show(first);
    if (go) await train();
  } catch (error) { if (mine === turn) fail(error.message); }
}
async function train() {
  const mine = ++turn, own = run, { until, enough } = own.ended ? {} : own.goal ?? {};
  const reached = ({ right, of, step }) => step >= until || right >= enough * of;
  running = true;
  renderButtons();
  try {
    const end = await ask("train", { until: until ?? Infinity, enough }, report => mine === turn && show(report));
    if (mine !== turn || !end) return;
    running = false;
    show(end);
    if (!asleep) say(told(end));
    if (!reached(end)) return;
    own.ended = true;
    asleep = false;
    more?.ended();
  } catch (error) { if (mine === turn) fail(error.message); }
}
function fail(message) {
  running = asleep = false;
  if (!last(run)) $("numbers").textContent = ""; // those of another setting
  run.failed = true;
  renderButtons();
  say(message);
  more?.failed(message);
}
const told = r => `After ${r.step} updates ${share(r)} sentences are exactly right. Loss ${r.loss.toFixed(2)}.`;
function say(text) { // to a screen reader, now and then
  $("said").textContent = text;
  spoken = performance.now();
}
function rest() { // while nobody looks
  const hidden = document.hidden || away;
  if (hidden && running) { asleep = true; ask("stop"); }
  if (hidden || !asleep) return;
  asleep = false;
  $("slept").hidden = false;
  train();
}

// --- what is shown -------------------------------------------------------------------------------------------------
function show(report) {
  const before = last(run);
  if (before) before.maps = before.german = null; // a long run keeps its curve alone
  run.reports.push(report);
  const { right, of, step, loss, seconds } = report, part = text => make("span", {}, ` ${text}`);
  if (step) $("numbers").replaceChildren(make("span", {}, make("b", {}, percent(right, of)),
    ` of ${of} unseen sentences exactly right`), part(`loss ${loss.toFixed(2)}`), part(`${step} updates`),
  part(`${seconds.toFixed(seconds < 10 ? 1 : 0)} s`));
  else $("numbers").textContent = "It knows nothing yet: its weights are random numbers.";
  if (running && performance.now() - spoken > 5000) say(told(report));
  renderButtons();
  renderSentences(report);
  renderCurves();
  renderMaps(report);
  more?.shown(report);
  document.body.dataset.ready = `${turn}.${run.reports.length}`;
}
function renderButtons() {
  const begun = last(run)?.step > 0;
  $("go").textContent = running ? "Pause" : begun ? "Go on" : "Train";
  $("go").disabled = !!run.failed;
  $("again").hidden = !begun && !run.failed;
}
function renderSentences({ german }) {
  $("sentences").replaceChildren(...SENTENCES.map(([english, wanted], i) => {
    const words = german[i], right = words.map((word, j) => word === wanted.split(" ")[j]);
    const kind = j => !right[j] ? "wrong" : turned[i]?.[j] === false ? "right fresh" : "right";
    const shown = words.flatMap((word, j) => [/^[.,]$/.test(word) ? "" : " ",
      make("span", { class: kind(j) }, j ? word : capital(word))]);
    turned[i] = wanted.split(" ").map((_, j) => !!right[j]);
    const done = words.join(" ") === wanted;
    return make("li", { class: done && "done" }, make("span", { class: "english" }, written(english.split(" "))),
      make("span", { class: "german", lang: "de" }, ...(words.length ? shown : ["\u2014"])),
      done && make("span", { class: "hidden" }, "exactly right"));
  }));
}
function chart(place, what, most, value, ticks, floor) { // ticks: [value, text, ...]
  const W = Math.max(120, place.clientWidth), H = 180, left = 42, bottom = 24, top = 10, right = 8;
  const end = Math.max(300, ...runs.map(other => last(other)?.step ?? 0));
  const x = step => left + (W - left - right) * step / end;
  const y = v => top + (H - top - bottom) * (1 - Math.min(v, most) / most);
  const words = (text, x, y, anchor) => make("text", { x, y, "text-anchor": anchor, fill: "var(--muted)" }, text);
  const line = (d, given) => make("path", { d, fill: "none", ...given });
  const along = reports => reports.map(r => `${x(r.step).toFixed(1)} ${y(value(r)).toFixed(1)}`).join("L");
  place.replaceChildren(make("svg", { width: W, height: H, role: "img", "font-size": 12, "aria-label": what },
    ...ticks.flatMap(([v, text]) => [line(`M${left} ${y(v)}H${W - right}`, { stroke: "var(--rule)" }),
      words(text, left - 6, y(v) + 4, "end")]),
    words("0", left, H - 6, "middle"), words(`${end} updates`, W - right, H - 6, "end"),
    floor && line(`M${left} ${y(floor)}H${W - right}`, { stroke: "var(--ink)", "stroke-dasharray": "1 4" }),
    floor && words("floor", W - right, y(floor) + 14, "end"),
    ...runs.filter(({ reports }) => reports.length > 1).map(({ reports, colour }) => line(`M${along(reports)}`,
      { class: `line run${colour}`, "stroke-width": reports === run.reports ? 3 : 1.6, "stroke-linejoin": "round" }))));
}
function renderCurves() {
  const now = last(run), e = setting(run.state).label_smoothing ?? USUAL.label_smoothing, rest = e / now.words;
  // the entropy of what is aimed at
  const floor = e && -(1 - e + rest) * Math.log(1 - e + rest) - (now.words - 1) * rest * Math.log(rest);
  chart($("curve"), `${percent(now.right, now.of)} exactly right after ${now.step} updates`, 1, r => r.right / r.of,
    [[0, "0%"], [0.5, "50%"], [1, "100%"]]);
  chart($("loss"), `Loss ${now.loss.toFixed(2)} after ${now.step} updates`, 6, r => r.loss,
    [[0, "0"], [2, "2"], [4, "4"], [6, "6"]], floor);
  $("floor").textContent = floor ? `Label smoothing: no loss below ${floor.toFixed(2)}.` : "No smoothing: it may reach 0.";
  const ran = runs.filter(other => last(other)?.step).reverse(), stroke = other => make("svg",
    { width: 26, height: 8, "aria-hidden": true }, make("path", { d: "M1 4H25", class: `line run${other.colour}`,
      "stroke-width": other === run ? 3 : 1.6 }));
  $("runs").replaceChildren(...ran.map(other =>
    make("li", {}, stroke(other), ` ${other.name}: ${percent(last(other).right, last(other).of)}`)));
}
function renderMaps({ maps }) {
  const [english, german] = SENTENCES[CUP].map(side => side.split(" ")), it = english.indexOf("it");
  const heads = ["encoder", "decoder", "cross"].flatMap(stack => Object.keys(maps).filter(place => place.startsWith(stack))
    .flatMap(place => maps[place].map((rows, h) => ({ stack, rows, name: `${place}.${h}`,
      title: `${capital(stack)}, layer ${+place.split(".")[1] + 1}, head ${h + 1}` }))));
  const looks = head => head.stack === "encoder" ? head.rows[it][english.indexOf("cup")] : -1;
  const best = heads.reduce((a, b) => looks(b) > looks(a) ? b : a), before = heads.find(({ name }) => name === chosen?.name);
  const one = before && (chosen.kept || looks(best) - looks(before) < 0.15) ? before : best; // no flicker
  chosen = { name: one.name, kept: !!before && chosen.kept };
  const keys = one.stack === "decoder" ? ["start", ...german] : [...english, "end"];
  const queries = one.stack === "encoder" ? keys : [...german, "end"];
  const svg = drawHead({ queries, keys, colour: `var(--${one.stack})`, same: one.stack === "encoder", label: one.title,
    fate: () => undefined, room: Math.min(620, $("map").clientWidth), strength: (q, k) => one.rows[q]?.[k] ?? 0,
    weight: (q, k) => one.rows[q]?.[k] ?? null });
  const told = looks(one) < 0 ? "" : `: \u201cit\u201d looks at \u201ccup\u201d with ${looks(one).toFixed(2)}`;
  for (const node of svg.querySelectorAll("[role]")) for (const name of ["role", "tabindex", "aria-label"]) {
    node.removeAttribute(name);
  }
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", one.title + told);
  $("map").replaceChildren(svg);
  $("where").textContent = one.title + told;
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
  if (last(run)) renderMaps(last(run));
}
function chooseNext(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], all = [...$("thumbs").children];
  if (!step) return;
  event.preventDefault();
  const to = all[(all.indexOf(event.target) + step + all.length) % all.length];
  choose(to.dataset.name);
  to.focus();
}

document.documentElement.classList.toggle("framed", parent !== window);
$("go").addEventListener("click", ({ detail }) => { // the second click of a double one would stop it
  if (detail > 1 && running && !last(run).step) return;
  $("slept").hidden = true;
  running ? ask("stop") : train();
});
$("again").addEventListener("click", () => {
  $("go").disabled = false;
  $("go").focus(); // the button pressed hides itself
  begin(true);
});
const redraw = () => last(run) && (renderCurves(), renderMaps(last(run)));
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("visibilitychange", rest);
new IntersectionObserver(([entry]) => { away = !entry.isIntersecting; rest(); }).observe(document.body);
begin(false);
