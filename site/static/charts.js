// Still pictures become charts that answer to the pointer: at its touch, or, where a chart has controls, at the press of a button.
// Without scripts the pictures stay.
window.charts = {};
const here = new URL(".", document.currentScript.src).href;
const loaded = {};

function load(name) {
  return loaded[name] ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    Object.assign(script, {src: here + name, onload: done, onerror: failed});
    document.head.append(script);
  });
}

async function draw(figure) {
  const name = figure.dataset.chart, dark = document.documentElement.dataset.theme === "dark";
  await load("vega.js");
  await load(`charts/${name}.js`);
  const place = document.createElement("div"), spec = fitting(structuredClone(window.charts[name]));
  const shown = await vegaEmbed(place, spec, {renderer: "svg", actions: false, ast: false, theme: dark ? "dark" : undefined});
  figure.view?.finalize();
  figure.view = shown.view;
  for (const input of place.querySelectorAll("input, select")) input.setAttribute("aria-label", input.name || "choose");
  for (const svg of place.querySelectorAll("svg.marks")) svg.setAttribute("aria-label", figure.dataset.about);
  for (const marks of place.querySelectorAll("svg.marks g[role]:not([aria-label])"))
    for (const said of ["role", "aria-roledescription"]) marks.removeAttribute(said);  // a group without a name says nothing
  addPlay(place, shown.view, spec);
  figure.querySelector('.drawn').replaceChildren(place);
  figure.querySelector('button.live')?.remove();
  reachable();
}

// A reader's letters may be wider than ours; on a telephone, charts that stand side by side stand one under the other, their legends below.
function fitting(spec) {
  spec.config.axis = {labelLimit: 400, ...spec.config.axis};
  if (innerWidth > 600) return spec;
  spec.config.legend = {...spec.config.legend, orient: "bottom", columns: 1};
  const {hconcat, ...rest} = spec;
  return hconcat ? {...rest, vconcat: hconcat} : spec;
}

// a slider whose name begins with "step" plays by itself at the press of a button
function addPlay(place, view, spec) {
  for (const {name, bind} of spec.params ?? []) {
    if (!name.startsWith("step") || bind?.input !== "range") continue;
    const button = Object.assign(document.createElement("button"), {className: "play", textContent: "▶ play", type: "button"});
    button.onclick = async () => {
      button.disabled = true;
      for (let at = bind.min; at <= bind.max && place.isConnected; at += bind.step ?? 1) {
        await view.signal(name, at).runAsync();
        await new Promise(done => setTimeout(done, 700));
      }
      button.disabled = false;
    };
    (place.querySelector(".vega-bindings") ?? place).append(button);
  }
}

function wake(figure) {
  figure.awake ??= draw(figure);
}

document.querySelectorAll("figure.chart").forEach((figure, number) => {
  figure.querySelector("figcaption").textContent = `Chart ${number + 1}`;
  figure.addEventListener("click", () => wake(figure));
  if (!figure.dataset.controls) return figure.addEventListener("pointerenter", seen => seen.pointerType === "mouse" && wake(figure));
  const button = Object.assign(document.createElement("button"), {className: "play live", textContent: "▶ play with it", type: "button"});
  figure.querySelector("figcaption").append(" ", button);
});

new MutationObserver(() => document.querySelectorAll("figure.chart").forEach(figure => figure.view && draw(figure)))
  .observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});

// formulas and charts that are wider than the page scroll by the keyboard, too
function reachable() {
  for (const box of document.querySelectorAll("div.math, mjx-container[display], figure.chart .drawn"))
    box.scrollWidth > box.clientWidth ? box.tabIndex = 0 : box.removeAttribute("tabindex");
}
window.addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(reachable));
window.addEventListener("resize", reachable);

// the live pages of the first screen are fetched when the text stands, those to try when they are opened
const fetched = frame => { frame.src ||= frame.dataset.src; };
window.addEventListener("load", () => document.querySelectorAll("iframe[data-src]:not(details *)").forEach(fetched));
document.querySelectorAll("details.try").forEach(box =>
  box.addEventListener("toggle", () => box.open && fetched(box.querySelector("iframe"))));
