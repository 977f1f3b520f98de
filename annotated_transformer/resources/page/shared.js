// What the live pages share: a worker that is asked, heads as small maps, files and the clipboard.
"use strict";
const $ = id => document.getElementById(id);

// Asks an object of the class `name`, which the script `source` defines, in a worker of its own; where there is none,
// what `here` gives does it beside the page. ask(method, given, report) promises the answer.
function connect(source, name, here) {
  const waiting = new Map(), receive = ({ data: { id, result, error, progress } }) => {
    const { done, failed, report } = waiting.get(id);
    if (progress !== undefined) return report?.(progress);
    waiting.delete(id);
    error === undefined ? done(result) : failed(new Error(error));
  };
  let last = 0, send, worker;
  const beside = () => {
    const answer = answering(here(), data => receive({ data }));
    send = data => setTimeout(() => answer({ data }));
  };
  try {
    const script = `${source}\nself.onmessage = answering(new ${name}(), data => self.postMessage(data));`;
    worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    send = data => worker.postMessage(data);
    worker.onmessage = receive;
    worker.onerror = event => {
      event.preventDefault();
      beside();
      for (const { message } of waiting.values()) send(message);
    };
  } catch { beside(); }
  const ask = (method, given, report) => new Promise((done, failed) => {
    const message = { id: ++last, method, given };
    if (method !== "stop") waiting.set(last, { done, failed, report, message });
    send(message);
  });
  ask.end = () => worker?.terminate();
  return ask;
}

// Draws a box's buttons anew; the focus stays on the one that has taken its place, or goes to `other`.
function refocused(box, draw, other) {
  const at = [...box.querySelectorAll("button")].indexOf(document.activeElement);
  draw();
  const all = box.querySelectorAll("button");
  if (at >= 0) (all[Math.min(at, all.length - 1)] ?? other)?.focus();
}

function paint(canvas, rows, colour) {
  const keys = Math.max(...rows.map(row => row.length)), context = canvas.getContext("2d"),
    image = context.createImageData(keys, rows.length);
  const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
  rows.forEach((row, q) => row.forEach((s, k) => image.data.set([r, g, b, 255 * Math.min(1, s)], 4 * (q * keys + k))));
  canvas.width = keys;
  canvas.height = rows.length;
  context.putImageData(image, 0, 0);
}
function save(content, type, name) {
  const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
async function copy(text, button) {
  button.dataset.name ??= button.textContent; // a second click finds it "Copied"
  try { await navigator.clipboard.writeText(text); }
  catch { // from disk there may be no clipboard
    const area = make("textarea", { class: "hidden", "aria-hidden": true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    button.focus();
    if (!done) return;
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = button.dataset.name; }, 1200);
}
