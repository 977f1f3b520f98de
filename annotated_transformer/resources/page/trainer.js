// The encoder-decoder of annotated_transformer.model, trained in the page: forward, backward, Adam, greedy search.
//
//   const language = new Language(GRAMMAR);                                            // text.js
//   const trainer = new Trainer({ vocab_size: language.size, seed: 1, scale: false }); // what is not given: USUAL
//   const pairs = [language.encode(language.sentence(random)), ...];                   // [[source ids, target ids], ...]
//   trainer.update(pairs)          one update; gives the loss before it, and throws where that is no number any more
//   trainer.step, trainer.rate()   updates so far; the learning rate of the next
//   trainer.score(pairs)           { loss, exact, rows }; rows[i][j]: is pair i's token j predicted right?
//   trainer.translate(sources)     greedy search: a list of ids for each, without END
//   trainer.written(pairs)         rows as score's, of what the model writes by itself
//   trainer.maps(source, read)     { "encoder.0": [head][query][key], "decoder.0": ..., "cross.0": ... }
//   trainer.exported(language)     { config, vocabulary: { name, content }, weights }: a run, as the live page opens it
//   trainer.values(name), trainer.gradients(name), trainer.weights, trainer.shapes, trainer.config, trainer.peak (bytes)
//
// A tensor is { rows, cols, at, back }: where its numbers and their gradient lie in WebAssembly's memory, in bytes.
// Sentences lie one below the other without padding. While it computes, each part puts on a tape how its gradient goes
// back.
"use strict";
const MOST_MEMORY = 8192, LONGEST = 128; // pages of 64 kB; tokens of a sentence

const USUAL = {
  vocab_size: 244, d_model: 32, d_ff: 128, n_heads: 4, n_layers: 2, pre_norm: false,
  warmup_steps: 200, rate: 1, label_smoothing: 0.1, seed: 1,
  // the parts that can be switched off
  positions: true, scale: true, feed_forward: true, residual: true, norm: true, warmup: true, causal_mask: true,
  cross_attention: true, encoder: true, embedding_scale: true, small_draw: true,
};

// Why a configuration cannot be trained, in one sentence; null where it can.
function refused(c) {
  for (const name of ["vocab_size", "d_model", "d_ff", "n_heads", "n_layers", "warmup_steps"]) {
    if (!Number.isInteger(c[name]) || c[name] < 1) return `${name} is ${c[name]}: give a whole number above 0`;
  }
  if (c.d_model % (4 * c.n_heads)) {
    return `d_model is ${c.d_model} and n_heads ${c.n_heads}: a head's width, d_model / n_heads, has to be a multiple of 4`;
  }
  for (const name of ["d_ff", "vocab_size"]) if (c[name] % 4) return `${name} is ${c[name]}: give a multiple of 4`;
  if (!(c.rate > 0)) return `rate is ${c.rate}: give a number above 0`;
  if (!(c.label_smoothing >= 0 && c.label_smoothing < 1)) {
    return `label_smoothing is ${c.label_smoothing}: give a number from 0 to below 1`;
  }
  const unknown = Object.keys(c).filter(name => !(name in USUAL));
  return unknown.length ? `${unknown[0]} is no setting of this trainer` : null;
}

class Trainer {
  constructor(given = {}) {
    const c = this.config = { ...USUAL, ...given }, no = refused(c);
    if (no) throw new Error(no);
    try {
      this.memory = new WebAssembly.Memory({ initial: 2, maximum: MOST_MEMORY });
      this.kernel = kernel(this.memory);
    } catch { throw new Error("the training needs WebAssembly with SIMD, which this browser does not run"); }
    this.shapes = shapesOf(c); // name -> shape, in the order in which the weights lie
    this.tape = null;
    this.step = this.peak = 0;
    this.top = KERNEL_PAGE;
    this.w = Object.fromEntries(Object.entries(this.shapes).map(([name, [m, n = 1]]) => [name, this.tensor(m, n)]));
    this.first = KERNEL_PAGE;
    this.bytes = this.top - this.first;
    this.room(3 * this.bytes / 4); // gradients, and Adam's two means
    for (const weight of Object.values(this.w)) weight.back = weight.at + this.bytes;
    this.waves = this.room(LONGEST * c.d_model);
    this.base = this.top;
    this.initialise();
  }
  get size() { return this.bytes / 4; }
  get weights() { return this.view(this.first, this.size); } // views hold until the memory grows, at the next update
  values(name) { return this.view(this.w[name].at, this.w[name].rows * this.w[name].cols); }
  gradients(name) { return this.view(this.w[name].back, this.w[name].rows * this.w[name].cols); }

  // Xavier's uniform draw; what a sub-layer adds to its input begins smaller, by (8 n_layers)^(-1/4).
  initialise() {
    const { d_model: d, n_layers, seed, small_draw, positions } = this.config, random = randoms(seed + 1);
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    for (let i = 0; i < 20; i++) random();
    for (const [name, [m, n]] of Object.entries(this.shapes)) {
      const small = small_draw && !/query|key/.test(name) ? (8 * n_layers) ** -0.25 : 1;
      const bound = small * Math.sqrt(6 / (m + n)), values = this.values(name);
      if (name === "embedding.weight") for (let i = 0; i < m * n; i++) values[i] = normal() / Math.sqrt(d);
      else if (n === undefined) values.fill(name.endsWith("weight") ? 1 : 0);
      else for (let i = 0; i < m * n; i++) values[i] = bound * (2 * random() - 1);
    }
    const waves = this.view(this.waves, LONGEST * d);
    if (positions) for (let i = 0; i < waves.length; i++) {
      const angle = Math.floor(i / d) / 10000 ** (2 * Math.floor(i % d / 2) / d);
      waves[i] = i % 2 ? Math.cos(angle) : Math.sin(angle);
    }
  }

  // --- memory: taken from below, and given back all at once ----------------------------------------------------------
  room(n) { // for n numbers, and some that a kernel may read past a row's end
    const at = this.top, missing = (this.top += 4 * n + 31 & ~15) - this.memory.buffer.byteLength;
    if (missing > 0) {
      try { this.memory.grow(Math.ceil(missing / 65536) + 64); } catch {
        throw new Error(`it needs more than ${this.memory.buffer.byteLength >> 20} MB of memory: choose a smaller width or fewer layers`);
      }
    }
    this.peak = Math.max(this.peak, this.top);
    return at;
  }
  view(at, n, Kind = Float32Array) { return new Kind(this.memory.buffer, at, n); }
  tensor(rows, cols) {
    const t = { rows, cols, at: this.room(rows * cols), back: 0 };
    if (this.tape) { t.back = this.room(rows * cols); this.view(t.back, rows * cols).fill(0); }
    return t;
  }
  wholes(list) { const at = this.room(list.length); this.view(at, list.length, Int32Array).set(list); return at; }
  transposed(at, rows, cols) { const to = this.room(rows * cols); this.kernel.transpose(at, to, rows, cols); return to; }
  begin(training) {
    this.top = this.base;
    this.tape = training ? [] : null;
    for (const weight of Object.values(this.w)) weight.turned = null;
  }
  then(back) { this.tape?.push(back); }

  // --- the parts -----------------------------------------------------------------------------------------------------
  linear(name, x, biased = false) { // x W^T (+ b)
    const W = this.w[name + ".weight"], b = this.w[name + ".bias"], { rows } = x, { rows: m, cols: n } = W, k = this.kernel;
    const y = this.tensor(rows, m);
    W.turned ??= this.transposed(W.at, m, n);
    k.product(x.at, W.turned, y.at, rows, m, n, n, 1, m, m, 0);
    if (biased) k.add_to_rows(y.at, b.at, rows, m);
    this.then(() => {
      k.product(y.back, W.at, x.back, rows, n, m, m, 1, n, n, 1); // dY W
      k.product(y.back, x.at, W.back, m, n, rows, 1, m, n, n, 1); // dY^T x
      if (biased) k.add_rows(b.back, y.back, rows, m);
    });
    return y;
  }
  // `spans`: for each sentence [first query, queries, first key, keys]. `kept` is given all weights.
  attend(q, k, v, spans, causal, kept) {
    const { n_heads, d_model: d, scale } = this.config, root = scale ? (d / n_heads) ** -0.5 : 1, row = at => 4 * d * at;
    const out = this.tensor(q.rows, d), keys = this.transposed(k.at, k.rows, d), filled = l => l + 3 & ~3;
    const weights = spans.map(([, n, , l]) => this.room(n_heads * n * filled(l)));
    spans.forEach(([i, n, j, l], s) => {
      this.kernel.attend(q.at + row(i), keys + 4 * j, k.rows, v.at + row(j), weights[s], out.at + row(i), n, l, d,
        n_heads, root, causal);
      kept?.(h => Array.from({ length: n }, (_, i) => [...this.view(weights[s] + 4 * (h * n + i) * filled(l), l)]));
    });
    this.then(() => {
      const values = this.transposed(v.at, v.rows, d), D = this.room(Math.max(...spans.map(([, n, , l]) => n * filled(l))));
      spans.forEach(([i, n, j, l], s) => this.kernel.attend_back(q.at + row(i), k.at + row(j), values + 4 * j, v.rows,
        weights[s], D, out.back + row(i), q.back + row(i), k.back + row(j), v.back + row(j), n, l, d, n_heads, root));
    });
    return out;
  }
  attention(name, x, memory, spans, causal, kept) {
    const q = this.linear(name + ".query", x), k = this.linear(name + ".key", memory),
      v = this.linear(name + ".value", memory);
    return this.linear(name + ".output", this.attend(q, k, v, spans, causal, kept));
  }
  feedForward(name, x) {
    const y = this.linear(name + ".inner", x, true), n = y.rows * y.cols;
    this.kernel.relu(y.at, n);
    this.then(() => this.kernel.relu_back(y.back, y.at, n));
    return this.linear(name + ".outer", y, true);
  }
  norm(name, x) {
    if (!this.config.norm) return x;
    const gain = this.w[name + ".weight"], bias = this.w[name + ".bias"], { rows, cols } = x, y = this.tensor(rows, cols);
    const unit = this.room(rows * cols), one = this.room(rows);
    this.kernel.norm(x.at, gain.at, bias.at, y.at, unit, one, rows, cols);
    this.then(() => this.kernel.norm_back(y.back, gain.at, unit, one, x.back, gain.back, bias.back, rows, cols));
    return y;
  }
  sum(x, y) {
    const z = this.tensor(x.rows, x.cols), n = x.rows * x.cols;
    this.kernel.add(x.at, y.at, z.at, n);
    this.then(() => { for (const { back } of [x, y]) this.kernel.add(back, z.back, back, n); });
    return z;
  }
  residual(name, x, sublayer) { // LayerNorm(x + Sublayer(x)), or with pre_norm x + Sublayer(LayerNorm(x))
    const { pre_norm, residual } = this.config, y = sublayer(pre_norm ? this.norm(name + ".norm", x) : x);
    const z = residual ? this.sum(x, y) : y;
    return pre_norm ? z : this.norm(name + ".norm", z);
  }
  embed(sentences) {
    const E = this.w["embedding.weight"], d = E.cols, root = this.config.embedding_scale ? Math.sqrt(d) : 1;
    const ids = this.wholes(sentences.flat()), places = this.wholes(sentences.flatMap(ids => [...ids.keys()]));
    const x = this.tensor(sentences.reduce((sum, ids) => sum + ids.length, 0), d);
    this.kernel.embed(E.at, ids, this.waves, places, x.at, x.rows, d, root);
    this.then(() => this.kernel.embed_back(E.back, ids, x.back, x.rows, d, root));
    return x;
  }

  // --- Figure 1 ------------------------------------------------------------------------------------------------------
  encode(src, kept) {
    const spans = spansOf(src, src), { encoder, n_layers, feed_forward, pre_norm } = this.config;
    let x = this.embed(src);
    for (let l = 0; encoder && l < n_layers; l++) {
      const name = `encoder.${l}`;
      x = this.residual(name + ".residuals.0", x, y =>
        this.attention(name + ".self_attention", y, y, spans, false, kept?.(name)));
      if (feed_forward) x = this.residual(name + ".residuals.1", x, y => this.feedForward(name + ".feed_forward", y));
    }
    return pre_norm ? this.norm("encoder_norm", x) : x;
  }
  decode(src, tgt, memory, kept) { // the logits
    const own = spansOf(tgt, tgt), cross = spansOf(tgt, src), c = this.config;
    let x = this.embed(tgt);
    for (let l = 0; l < c.n_layers; l++) {
      const name = `decoder.${l}`;
      x = this.residual(name + ".residuals.0", x, y =>
        this.attention(name + ".self_attention", y, y, own, c.causal_mask, kept?.(name)));
      if (c.cross_attention) x = this.residual(name + ".residuals.1", x, y =>
        this.attention(name + ".cross_attention", y, memory, cross, false, kept?.(`cross.${l}`)));
      if (c.feed_forward) x = this.residual(name + ".residuals.2", x, y => this.feedForward(name + ".feed_forward", y));
    }
    return this.linear("embedding", c.pre_norm ? this.norm("decoder_norm", x) : x);
  }

  // --- training ------------------------------------------------------------------------------------------------------
  // `pairs`: [source with END, target between START and END]. Gives the loss, and right[row] where it is given.
  loss(pairs, right) {
    const src = pairs.map(pair => pair[0]), tgt = pairs.map(pair => pair[1].slice(0, -1));
    const x = this.decode(src, tgt, this.encode(src)), wanted = pairs.flatMap(pair => pair[1].slice(1));
    const hits = this.room(x.rows), smoothing = this.config.label_smoothing;
    const loss = this.kernel.cross_entropy(x.at, x.back, this.wholes(wanted), hits, x.rows, x.cols, smoothing);
    right?.push(...this.view(hits, x.rows, Int32Array));
    return loss;
  }
  gradient(pairs) { // left in the gradients
    this.begin(true);
    this.view(this.first + this.bytes, this.size).fill(0);
    const loss = this.loss(pairs);
    while (this.tape.length) this.tape.pop()();
    return loss;
  }
  rate() { // equation 3 times `rate`; without warm-up constant, at its peak
    const { d_model, warmup_steps, rate, warmup } = this.config, s = warmup ? this.step + 1 : warmup_steps;
    return rate * d_model ** -0.5 * Math.min(s ** -0.5, s * warmup_steps ** -1.5);
  }
  adam() {
    const rate = this.rate(), s = ++this.step, [w, g, mean, square] = [0, 1, 2, 3].map(i => this.first + i * this.bytes);
    this.kernel.adam(w, g, mean, square, this.size, rate / (1 - 0.9 ** s), 1 / Math.sqrt(1 - 0.98 ** s));
  }
  update(pairs) {
    const loss = this.gradient(pairs);
    if (!Number.isFinite(loss)) throw new Error(`after ${this.step} updates the loss is no longer a number`);
    this.adam();
    return loss;
  }

  // --- what it has learned -------------------------------------------------------------------------------------------
  score(pairs) { // exact: the share that greedy search would write, each token right after the right ones before it
    this.begin(false);
    const right = [], loss = this.loss(pairs, right);
    let at = 0;
    const rows = pairs.map(([, tgt]) => right.slice(at, at += tgt.length - 1).map(Boolean));
    return { loss, rows, exact: rows.filter(row => row.every(Boolean)).length / rows.length };
  }
  translate(sources, most = 24) {
    this.begin(false);
    const memory = this.encode(sources), out = sources.map(() => [START]);
    let open = out, top = 0;
    for (let n = 0; n < most && open.length; n++) {
      if (top) this.top = top; // the weights' transposes stay below
      const x = this.decode(sources, out, memory), logits = this.view(x.at, x.rows * x.cols);
      top ||= this.top;
      let row = -1;
      for (const ids of out) {
        row += ids.length;
        if (!open.includes(ids)) continue;
        let best = END;
        for (let i = END; i < x.cols; i++) if (logits[row * x.cols + i] > logits[row * x.cols + best]) best = i;
        ids.push(best);
      }
      open = open.filter(ids => ids.at(-1) !== END);
    }
    return out.map(ids => ids.slice(1, ids.at(-1) === END ? -1 : undefined));
  }
  written(pairs) {
    const found = this.translate(pairs.map(pair => pair[0]));
    return pairs.map(([, tgt], i) => tgt.slice(1).map((id, j) => (found[i][j] ?? END) === id));
  }
  maps(source, read) {
    this.begin(false);
    const found = {}, heads = [...Array(this.config.n_heads).keys()];
    const kept = name => map => { found[name] = heads.map(map); };
    this.decode([source], [read], this.encode([source], kept), kept);
    return found;
  }

  // A run's config.json, vocabulary and weights, for the live page's engine and for the package.
  exported(language) {
    const { vocab_size, n_layers, d_model, d_ff, n_heads, pre_norm, scale, warmup_steps, rate, label_smoothing, seed } =
      this.config, missing = WHOLE.filter(name => !this.config[name]), d_k = d_model / n_heads;
    if (missing.length) throw new Error(`neither the live page nor the package runs a model without ${missing[0]}`);
    const tensors = Object.entries(this.shapes).map(([name, shape]) => {
      const values = this.values(name).slice();
      if (!scale && /query/.test(name)) for (let i = 0; i < values.length; i++) values[i] *= Math.sqrt(d_k); // divided there
      return { name, shape, values };
    });
    return {
      config: {
        kind: "transformer",
        model: { vocab_size, n_layers, d_model, d_ff, n_heads, d_k, d_v: d_k, dropout: 0, pre_norm, positions: "sinusoidal" },
        training: { steps: this.step, warmup_steps, rate, label_smoothing, seed },
        data: { name: "playground", src: "en", tgt: "de" },
      },
      vocabulary: { name: "vocabulary.json", content: language.file() }, weights: safetensors(tensors),
    };
  }
}
const WHOLE = ["positions", "feed_forward", "residual", "norm", "causal_mask", "cross_attention", "encoder",
  "embedding_scale"];

function safetensors(tensors) { // a header of JSON, its length before it in 8 bytes, then the numbers
  let at = 0;
  const header = Object.fromEntries(tensors.map(({ name, shape, values }) =>
    [name, { dtype: "F32", shape, data_offsets: [at, at += values.byteLength] }]));
  const json = JSON.stringify(header), text = new TextEncoder().encode(json.padEnd(json.length + 7 & ~7));
  const file = new Uint8Array(8 + text.length + at);
  new DataView(file.buffer).setUint32(0, text.length, true);
  file.set(text, 8);
  tensors.forEach(({ name, values }) =>
    file.set(new Uint8Array(values.buffer), 8 + text.length + header[name].data_offsets[0]));
  return file.buffer;
}

function shapesOf({ vocab_size, d_model: d, d_ff: f, n_layers, feed_forward, norm, pre_norm }) {
  const shapes = { "embedding.weight": [vocab_size, d] };
  const add = (name, ...shape) => { shapes[name] = shape; };
  const normed = name => { if (norm) { add(name + ".weight", d); add(name + ".bias", d); } };
  for (const stack of ["encoder", "decoder"]) for (let l = 0; l < n_layers; l++) {
    const name = `${stack}.${l}`, attentions = stack === "encoder" ? ["self"] : ["self", "cross"];
    for (const kind of attentions) for (const part of ["query", "key", "value", "output"]) {
      add(`${name}.${kind}_attention.${part}.weight`, d, d);
    }
    if (feed_forward) {
      add(`${name}.feed_forward.inner.weight`, f, d); add(`${name}.feed_forward.inner.bias`, f);
      add(`${name}.feed_forward.outer.weight`, d, f); add(`${name}.feed_forward.outer.bias`, d);
    }
    for (let r = 0; r < attentions.length + feed_forward; r++) normed(`${name}.residuals.${r}.norm`);
  }
  if (pre_norm) { normed("encoder_norm"); normed("decoder_norm"); }
  return shapes;
}
function spansOf(queries, keys) {
  let i = 0, j = 0;
  return queries.map(({ length: n }, s) => {
    const l = keys[s].length;
    i += n; j += l;
    return [i - n, n, j - l, l];
  });
}
