// What one does with the playground: tasks, switches, looking inside, files, Python.
"use strict";
const GIVEN = JSON.parse($("given").textContent); // chapters and ending of links to them, expected: what records say
const THINGS = "hat ball table letter lamp cup flower door book picture bed window".split(" ");
const CHOICES = { d_model: ["Width", [16, 32, 48, 64, 96]], n_layers: ["Layers", [1, 2, 3]], n_heads: ["Heads", [1, 2, 4, 8]],
  rate: ["Rate \u00d7", [0.25, 0.5, 1, 1.5, 2, 3]], seed: ["Seed", [1, 2, 3, 4, 5]] };
// what is switched: its name; a run's without it; why the paper has it; the chapter that tells more
const SWITCHES = {
  positions: ["Positions", "no positions",
    "Attention sees a set of words; waves of many lengths tell it where each one stands.", "model/embedding"],
  scale: ["Division by \u221ad_k", "no \u221ad_k",
    "Dot products grow with a head\u2019s width; undivided, the softmax picks one word and hardly learns.",
    "model/attention"],
  heads: ["Several heads", "one head", "Each head looks at one place; a single one has to average over all of them.",
    "model/attention"],
  feed_forward: ["Feed-forward network", "no feed-forward",
    "After the words have exchanged what they know, each is worked on by itself.", "model/feed_forward"],
  residual: ["Residual connections", "no residuals",
    "A sub-layer adds to what came in, so that gradients reach the bottom.", "model/layers"],
  norm: ["Layer normalisation", "no normalisation", "It keeps what each layer reads on one scale.", "model/layers"],
  post_norm: ["Normalised after adding", "pre-norm",
    "The paper normalises after each sub-layer; most later models do so before it.", "model/layers"],
  warmup: ["Warm-up", "constant rate",
    "The rate climbs first, because Adam\u2019s first steps rest on few gradients. Off is a constant rate at the peak: "
    + "faster at first; it fails only at a higher rate. Try 1.5.", "training/optimizer"],
  causal_mask: ["Mask of the future", "no mask",
    "A word is predicted from earlier words alone, for no others exist when the model translates.", "model/attention"],
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
    "Ours, not the paper\u2019s: what a sub-layer adds begins small, which does some of the normalisation\u2019s work.",
    "model/transformer"],
};
const UNLIKE = Object.keys(SWITCHES).filter(name => !["heads", "scale", "post_norm", "warmup", "label_smoothing", "small_draw"]
  .includes(name)); // what the live page does not leave out
// in the order in which they astonish: say what to look at, tell what was seen, ask
const TASKS = [
  { id: "learn", title: "Train it", change: {}, until: 1500, enough: 0.95,
    say: "It begins with random numbers and sees nothing but pairs of sentences.",
    seen: r => r.right < 0.95 * r.of ? `${share(r)} are right after ${r.step} updates; usually it learns faster.`
      : `After ${Math.round(r.seconds)} seconds and ${(64 * r.step).toLocaleString("en")} pairs, ${share(r)} sentences that `
        + "it never trained on come out exactly right.",
    ask: "A cup is \u201csie\u201d and a hat is \u201cer\u201d. Nobody said so. Where does the model keep it?" },
  { id: "mask", title: "The lowest loss that knows nothing", change: { off: ["causal_mask"] }, until: 400,
    say: "Without the mask the decoder sees the very word that it is to predict. Watch the loss.",
    seen: r => `The loss is ${r.loss.toFixed(2)}, ${lowest(r) ? "the lowest of all your runs" : "low"}, and ${share(r)} `
      + "sentences are right. It copies the next word instead of predicting it.",
    ask: "When it translates there is no next word to copy. What does it write, and why?" },
  { id: "positions", title: "The king and the woman", change: { off: ["positions"] }, until: 400,
    say: "Without positions a sentence is a bag of words. Watch who sees whom.",
    seen: r => String(r.german[KING]) === String(r.german[KING + 1])
      ? `\u201cThe king sees the woman\u201d and its reverse became one sentence: \u201c${sentence(r.german[KING])}\u201d`
      : `It tells the two sentences apart here, by luck; ${share(r)} sentences are right.`,
    ask: "Some sentences come out right all the same. What have they in common?" },
  { id: "scale", title: "One wide head", change: { n_heads: 1, off: ["scale"] }, until: 400,
    say: "One head of width 32, and its scores are not divided by \u221a32.",
    seen: r => `${share(r)} are right after ${r.step} updates${beside(r)}. Undivided scores are large: the softmax picks `
      + "one word from the start, and hardly any gradient comes through.",
    ask: "Take four heads again and leave the division out. Why does it matter less now?" },
  { id: "residual", title: "Nothing moves", change: { off: ["residual"] }, until: 400,
    say: "Each sub-layer now replaces what came in instead of adding to it.",
    seen: r => r.right < 0.05 * r.of ? `After ${r.step} updates the loss is ${r.loss.toFixed(2)} and ${share(r)} are `
      + "right: it has learned which words are frequent, and no more." : `${share(r)} are right${beside(r)}: it learns late.`,
    ask: "Take one layer instead of two. Does it still stand still?" },
  { id: "cross", title: "Fluent about something else", change: { off: ["cross_attention"] }, until: 400,
    say: "The decoder cannot see the English any more. Read what it writes.",
    seen: r => `\u201c${written(SENTENCES[KING][0].split(" "))}\u201d became \u201c${sentence(r.german[KING])}\u201d It writes `
      + `German, about something else: ${share(r)} are right.`,
    ask: "What can it know about a sentence that it has never read?" },
  { id: "cut", title: "Cut what you have just trained", change: { d_model: 64, n_layers: 1, n_heads: 2 }, until: 500,
    say: "One wide layer of two heads. When it has learned, we cut the edge from \u201cit\u201d to its noun.",
    ask: "Looking is not using: try the other head, and other sentences. When does the pronoun stay?" },
];
const LEARN = TASKS[0];
let task = LEARN;
const lowest = r => runs.every(other => other === run || !(last(other)?.loss < r.loss));
function beside(r) { // the paper's model after as many updates, where it ran here
  const paper = runs.find(other => other !== run && isPaper(other));
  const then = paper?.reports.find(({ step }) => step >= r.step) ?? (paper && last(paper));
  return then ? `, ${share(then)} with the paper\u2019s model after ${then.step}` : "";
}

// --- the state, its name and its address ---------------------------------------------------------------------------
const isOff = name => name === "heads" ? state.n_heads === 1 : state.off.includes(name);
function nameOf({ off, n_heads, d_model, n_layers, rate, seed }) {
  const parts = [d_model !== PAPER.d_model && `width ${d_model}`,
    n_layers !== PAPER.n_layers && `${n_layers} layer${n_layers > 1 ? "s" : ""}`,
    n_heads !== PAPER.n_heads && (n_heads === 1 ? "one head" : `${n_heads} heads`),
    ...off.map(name => SWITCHES[name][1]), rate !== PAPER.rate && `rate \u00d7 ${rate}`, seed !== PAPER.seed && `seed ${seed}`];
  return parts.filter(Boolean).join(", ") || "the paper\u2019s model";
}
function address() {
  const parts = new URLSearchParams(task ? { task: task.id } : {}), from = { ...PAPER, ...task?.change };
  for (const name of NUMBERS) if (state[name] !== from[name]) parts.set(name, state[name]);
  if (!task && state.off.length) parts.set("off", state.off.join(" "));
  return `#${parts}`;
}
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1)), known = name => SWITCHES[name] && name !== "heads";
  task = TASKS.find(({ id }) => id === parts.get("task")) ?? (location.hash.length > 1 ? null : LEARN);
  state = { ...structuredClone(PAPER), off: (parts.get("off") ?? "").split(" ").filter(known), ...task?.change };
  for (const name of NUMBERS) if (+parts.get(name) > 0) state[name] = +parts.get(name);
  goal = task;
}

// --- tasks and switches --------------------------------------------------------------------------------------------
const still = matchMedia("(prefers-reduced-motion: reduce)");
const button = (text, act) => make("button", { type: "button", onclick: act }, text);
function tell(title, ...parts) {
  $("told").hidden = !parts.length;
  $("told").replaceChildren(...(title ? [make("h2", {}, title)] : []), ...parts);
}
const line = text => make("p", {}, text);
function start(next) {
  task = goal = next;
  state = { ...structuredClone(PAPER), ...next.change };
  scrollTo({ top: 0, behavior: still.matches ? "auto" : "smooth" });
  $("go").focus({ preventScroll: true }); // what was pressed may go
  return begin(true);
}
async function ended() { // what was seen, a question, what comes next
  const own = run, mine = turn, cut = () => cutting().catch(error => ({ text: `${capital(error.message)}.` }));
  const found = task === TASKS.at(-1) ? await cut() : { text: task.seen(last(own)) };
  if (mine !== turn) return;
  const next = TASKS[TASKS.indexOf(task) + 1];
  tell(task.title, line(found.text), make("p", { class: "question" }, task.ask), make("div", { class: "buttons" },
    next && button(`Next: ${next.title}`, () => start(next)),
    found.head && button("Cut it yourself", () => lookInside(found.head)),
    task === LEARN && button("Look inside it", () => lookInside())));
}
function changed() { // by hand: no task any more
  task = goal = null;
  begin(!still.matches);
}
function flip(name) {
  if (name === "heads") state.n_heads = state.n_heads === 1 ? PAPER.n_heads : 1;
  else state.off = isOff(name) ? state.off.filter(other => other !== name) : [...state.off, name];
  changed();
}
const range = ([a, b]) => percent(a, 1) === percent(b, 1) ? percent(a, 1) : `${Math.round(100 * a)} to ${percent(b, 1)}`;
function expectation(name) { // from the records; nothing where there are none
  const one = GIVEN.expected?.off[name];
  if (!one) return null;
  const loss = one.loss ? `, loss ${one.loss.map(x => x.toFixed(2)).join(" to ")}` : "";
  return make("p", { class: "expect" }, `Off: ${range(one.exact)} right${loss}.`);
}
function build() {
  $("tasks").replaceChildren(...TASKS.map(one => make("li", {}, make("button", { type: "button", "data-task": one.id,
    onclick: () => start(one) }, one.title))));
  $("numbered").replaceChildren(...Object.entries(CHOICES).map(([name, [title, values]]) => make("label", {}, `${title} `,
    make("select", { id: name, onchange: ({ target }) => { state[name] = +target.value; changed(); } },
      ...values.map(value => make("option", { value }, String(value)))))));
  const link = chapter => GIVEN.chapters !== null && make("a", { target: "_blank", rel: "noopener",
    href: GIVEN.chapters + chapter + GIVEN.ending }, capital(chapter.split("/")[1].replace("_", " ")));
  const { updates, seeds, paper } = GIVEN.expected ?? {};
  $("usual").textContent = paper ? ` With all parts on, ${range(paper.exact)} of the sentences are exactly right after `
    + `${updates} updates (${seeds} seeds).` : "";
  $("switches").replaceChildren(...Object.entries(SWITCHES).map(([name, [title, , why, chapter]]) => make("li", {},
    make("label", {}, make("input", { type: "checkbox", role: "switch", id: `part-${name}`, onchange: () => flip(name) }),
      ` ${title}`), make("p", {}, `${why} `, link(chapter)), expectation(name))));
}
function begun() {
  try { history.replaceState(null, "", address()); } catch { /* a frame without an address */ }
  for (const [name, [, values]] of Object.entries(CHOICES)) {
    if (![...$(name).options].some(({ value }) => +value === state[name])) {
      $(name).append(make("option", { value: state[name] }, String(state[name])));
    }
    $(name).value = state[name];
  }
  for (const option of $("d_model").options) option.disabled = option.value % (4 * state.n_heads) > 0;
  for (const option of $("n_heads").options) option.disabled = state.d_model % (4 * option.value) > 0;
  for (const name of Object.keys(SWITCHES)) $(`part-${name}`).checked = !isOff(name);
  for (const one of $("tasks").querySelectorAll("button")) one.setAttribute("aria-current", task?.id === one.dataset.task);
  task && task !== LEARN ? tell(task.title, line(task.say)) : tell();
  $("python").textContent = python();
}
function shown({ step, right, of }) {
  if (step >= 400 && !run.goal && !run.noted && right < 0.05 * of) {
    run.noted = true;
    tell(`${step} updates, and it has not learned`, line(nameOf({ ...run.state, rate: 1, seed: 1 }) === "the paper\u2019s model"
      ? "Lower the rate, or take another seed." : "That may be what the part is for. Or it is the rate, or the seed: try others."));
  }
  const unlike = run.state.off.some(name => UNLIKE.includes(name)), poor = right < 0.3 * of;
  $("open").disabled = unlike || poor;
  $("download").disabled = unlike;
  $("own-note").textContent = unlike ? "\u201cLook inside\u201d runs the paper\u2019s model: switch its parts on again, and train."
    : poor ? "When it has learned, its weights go to the live page: type a sentence of its words, cut an edge, switch heads "
      + "off, and count over 200 sentences."
    : "It has learned. Type a sentence of its words, cut an edge, switch heads off, and count over 200 sentences.";
}
function failed(message) {
  const advice = /a number$/.test(message)
    ? ` Lower the rate${state.off.includes("warmup") ? ", or switch the warm-up on" : ""}.` : "";
  tell("It went wrong", line(`The reason: ${message}.${advice}`));
  if (!run.reports.length) $("open").disabled = $("download").disabled = true;
}

// --- look inside, take along ---------------------------------------------------------------------------------------
const live = () => JSON.parse($("inside").textContent).html; // the live page, which waits for its data
async function cutting() { // on which head's edge from "it" to its noun does the pronoun hang?
  const [, source] = /<script id="engine">([^]*?)<\/script>/.exec(live()), engine = connect(source, "Engine", () => null);
  try {
    await engine("open", await ask("exported"));
    return await cuts(engine);
  } finally { engine.end(); }
}
async function cuts(engine) {
  const edge = (head, key) => ({ stack: "encoder", layer: 0, head, query: 6, key, to: null });
  const write = async (noun, ...edges) => (await engine("translate", { text: `the man buys a ${noun} because it is old.`,
    changes: { edges } })).text.split(" ").find(word => ["er", "sie", "es"].includes(word));
  const counts = Array(run.state.n_heads).fill(0);
  let control = 0;
  for (const noun of THINGS) {
    const before = await write(noun);
    for (let head = 0; head < counts.length; head++) counts[head] += await write(noun, edge(head, 4)) !== before;
    control += await write(noun, edge(null, 1)) !== before;
  }
  const best = counts.indexOf(Math.max(...counts)), others = counts.filter((_, head) => head !== best).join(" and ");
  return { counts, control, head: `encoder.0.${best}`, text: `We cut \u201cit\u201d \u2192 its noun in ${THINGS.length} `
    + `sentences. In head ${best + 1} the pronoun changed in ${counts[best]} of them, in the other head in ${others}. With `
    + `\u201cit\u201d \u2192 \u201cman\u201d cut instead, in ${control}.` };
}
async function lookInside(head) {
  const { config, vocabulary, weights, sentences } = await ask("exported");
  const coded = buffer => btoa(Array.from(new Uint8Array(buffer), byte => String.fromCharCode(byte)).join(""));
  const data = (id, content, type = "text/plain") => `<script type="${type}" id="${id}">${content}</` + "script>";
  const text = n => written(SENTENCES[n][0].split(" "));
  const about = { path: "playground", name: "yours", config, vocabulary: vocabulary.name, sourceVocabulary: null, sentences,
    averages: false, presets: [
      { title: "It, and the hat", text: text(HAT), chosen: head,
        task: "You have just trained this. Click the line from \u201cit\u201d to \u201chat\u201d and cut it: does \u201cer\u201d change?" },
      { title: "The king and the woman", text: text(KING),
        task: "How does the decoder know who sees whom? Click the verb, and ask \u201cWhich head?\u201d" }] };
  const whole = live().replace("<!--DATA-->", () => [data("run", JSON.stringify(about).replaceAll("<", "\\u003c"),
    "application/json"), data("weights", coded(weights)), data("vocabulary", coded(vocabulary.content))].join("\n"));
  $("inside-frame").replaceChildren(make("iframe", { title: "Look inside the Transformer that you have trained",
    srcdoc: whole, class: "live", onload: ({ target }) => target.focus({ preventScroll: true }) }));
  $("own").scrollIntoView({ behavior: still.matches ? "auto" : "smooth" });
}
async function taken() { // the files of a run, as the package loads it
  const { config, vocabulary, weights } = await ask("exported");
  const hash = await crypto.subtle?.digest("SHA-256", vocabulary.content); // none in a frame without an origin
  if (hash) config.data.vocabulary = Array.from(new Uint8Array(hash), byte => byte.toString(16).padStart(2, "0")).join("");
  return { "averaged.safetensors": weights, [vocabulary.name]: vocabulary.content, "config.json": JSON.stringify(config, null, 1) };
}
async function download() {
  try {
    for (const [name, content] of Object.entries(await taken())) save(content, "application/octet-stream", name);
  } catch (error) { tell("Nothing was saved", line(`${capital(error.message)}.`)); }
}
function python() {
  const given = NUMBERS.filter(name => state[name] !== PAPER[name]).map(name => `${name}=${state[name]}`);
  const off = { post_norm: "pre_norm=True", label_smoothing: "label_smoothing=0" };
  const call = [task?.enough ? 400 : task?.until ?? 400, ...given, ...state.off.map(name => off[name] ?? `${name}=False`)];
  return `from annotated_transformer.inside.playground import train\n\nweights = train(${call.join(", ")})`;
}

more = { name: nameOf, begun, shown, ended, failed };
build();
readAddress();
$("open").addEventListener("click", () => lookInside());
$("link").hidden = location.protocol === "about:"; // a frame without an address
$("link").addEventListener("click", () => copy(location.href.split("#")[0] + address(), $("link")));
$("copy").addEventListener("click", () => copy(python(), $("copy")));
$("download").addEventListener("click", download);
addEventListener("hashchange", () => { if (location.hash !== address()) { readAddress(); begin(false); } });
if (location.hash.length > 1) begin(false);
else { run.goal = goal; begun(); if (last(run)) shown(last(run)); }
