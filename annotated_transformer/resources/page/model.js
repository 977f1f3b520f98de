// The encoder-decoder of annotated_transformer.model.transformer, with greedy and beam search, and with interventions.
"use strict";

// --- a run's weights: safetensors, 8-bit rows with their scales, half precision or float32 -------------------------
const HALVES = new Float32Array(65536);
for (let bits = 0; bits < 65536; bits++) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  HALVES[bits] = exponent === 31 ? (fraction ? NaN : sign * Infinity)
    : exponent ? sign * (1 + fraction / 1024) * 2 ** (exponent - 15) : sign * fraction * 2 ** -24;
}
function mapped(from, f, to = new Float32Array(from.length)) { // a plain loop: many times faster than Float32Array.from
  for (let i = 0; i < from.length; i++) to[i] = f(from[i], i);
  return to;
}
const READERS = {
  I8: bytes => new Int8Array(bytes),
  F16: bytes => mapped(new Uint16Array(bytes), bits => HALVES[bits]),
  BF16: bytes => new Float32Array(mapped(new Uint16Array(bytes), bits => bits << 16,
    new Uint32Array(bytes.byteLength / 2)).buffer),
  F32: bytes => new Float32Array(bytes),
};

// A matrix rounded to half precision as `rounded` in engine/kernels rounds it: shown is what is scored.
function rounded(data) {
  const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
  if (bits.some(b => (b & 0x7fffffff) >= 0x477ff000)) return; // 16 bits cannot hold it
  for (let i = 0; i < bits.length; i++) {
    if ((bits[i] & 0x7fffffff) < 0x38800000) data[i] = Math.fround(data[i] + 0.75) - 0.75; // to multiples of 2^-24
    else bits[i] = (bits[i] + 0xfff + ((bits[i] >>> 13) & 1)) & ~0x1fff;
  }
}

function readTensors(buffer) { // name -> {shape, data}, all float32
  const size = Number(new DataView(buffer).getBigUint64(0, true)), begin = 8 + size;
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size))), tensors = {};
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    if (!READERS[dtype]) throw new Error(`${name} is stored as ${dtype}, not as ${Object.keys(READERS).join(", ")}`);
    // a copy: offsets need not be aligned
    tensors[name] = { shape, data: READERS[dtype](buffer.slice(begin + from, begin + to)) };
  }
  for (const name of Object.keys(tensors).filter(name => name.endsWith(".row_scale"))) {
    const tensor = tensors[name.slice(0, -10)], scale = tensors[name].data, width = tensor.data.length / scale.length;
    const wholes = tensor.data;
    tensor.data = new Float32Array(wholes.length);
    for (let r = 0, i = 0; r < scale.length; r++) for (const end = i + width; i < end;
      i++) tensor.data[i] = wholes[i] * scale[r];
    delete tensors[name];
  }
  for (const { shape, data } of Object.values(tensors)) if (shape.length > 1) rounded(data);
  return tensors;
}

// What this page cannot run is refused by name. `parts` is a run's config.json.
function refusal(parts) {
  const kind = parts.kind || "transformer", c = parts.model, tgt = parts.data && parts.data.tgt;
  if (kind !== "transformer") return `a model of the kind "${kind}"`;
  if (["trees", "trees-with-words"].includes(tgt)) return "a parser";
  if (c.parameter_heads) return "attention over parameters";
  return null;
}

// --- arithmetic ----------------------------------------------------------------------------------------------------
// [rows, n] times the transpose of [m, n], where there is no WebAssembly
function product({ shape: [m, n], data: W }, x, rows) {
  return Float32Array.from({ length: rows * m }, (_, at) => {
    let sum = 0;
    for (let k = 0, i = Math.floor(at / m) * n, j = at % m * n; k < n; k++) sum += x[i + k] * W[j + k];
    return sum;
  });
}

function softmax(scores) { // in place; a query that may look nowhere gets zeros
  let most = -Infinity, sum = 0;
  for (const s of scores) if (s > most) most = s;
  if (most === -Infinity) return scores.fill(0);
  for (let i = 0; i < scores.length; i++) sum += scores[i] = Math.exp(scores[i] - most);
  for (let i = 0; i < scores.length; i++) scores[i] /= sum;
  return scores;
}

function logSumExp(x) {
  let most = -Infinity, sum = 0;
  for (const v of x) if (v > most) most = v;
  for (const v of x) sum += Math.exp(v - most);
  return most + Math.log(sum);
}

function rowsOf(x, width) {
  return Array.from({ length: x.length / width }, (_, r) => x.subarray(r * width, (r + 1) * width));
}

// --- interventions -------------------------------------------------------------------------------------------------
// {heads: {"encoder.1.1": "zero" or "mean"}, edges: [{stack, layer, head (null: all), query, key, to (null: cut)}]},
// counted from 0.
class Changes {
  constructor({ heads = {}, edges = [] } = {}, model) {
    const { n_heads, d_v } = model.config;
    this.outputs = new Map();
    this.edges = new Map(); // head -> query -> key -> what becomes of the edge
    for (const [name, how] of Object.entries(heads)) {
      if (how === "mean" && !model.means) throw new Error("no averages are known here: a head cannot be set to its mean");
      if (how !== "on") this.outputs.set(name, how === "mean" ? model.means[name] : new Float32Array(d_v));
    }
    const every = edges.filter(edge => edge.head === null), single = edges.filter(edge => edge.head !== null);
    for (const edge of [...every, ...single]) { // a head's own entry counts more
      for (let h = 0; h < n_heads; h++) {
        if (edge.head !== null && edge.head !== h) continue;
        const name = `${edge.stack}.${edge.layer}.${h}`;
        if (!this.edges.has(name)) this.edges.set(name, new Map());
        const queries = this.edges.get(name);
        if (!queries.has(edge.query)) queries.set(edge.query, new Map());
        queries.get(edge.query).set(edge.key, edge.to);
      }
    }
  }
  // The weights of one query: what is cut gets the score -infinity, what is redirected hands its weight over.
  weights(name, query, scores) {
    const keys = this.edges.get(name)?.get(query);
    if (!keys) return softmax(scores);
    const there = [...keys].filter(([key, to]) => key < scores.length && (to === null || to < scores.length));
    for (const [key, to] of there) if (to === null) scores[key] = -Infinity;
    const weights = softmax(scores), before = weights.slice();
    for (const [key, to] of there) if (to !== null) weights[key] = 0;
    for (const [key, to] of there) if (to !== null) weights[to] += before[key];
    return weights;
  }
}

// --- the model -----------------------------------------------------------------------------------------------------
class Model {
  constructor(parts, tensors, means = null, product_ = product) {
    const refused = refusal(parts);
    if (refused) throw new Error(`this page does not run ${refused}`);
    this.config = parts.model;
    this.tensors = tensors;
    this.product = product_; // of a matrix and rows
    this.means = means; // head -> its mean output
    for (const stack of ["encoder", "decoder"]) {
      if (this.config.pre_norm
        && !tensors[`${stack}_norm.weight`]) throw new Error("the weights do not fit config.json");
    }
  }
  get limit() { return this.config.positions === "learned" ? this.config.max_length : Infinity; }

  linear(name, x, rows) {
    const y = this.product(this.tensors[name + ".weight"], x, rows), bias = this.tensors[name + ".bias"]?.data;
    if (bias) for (let i = 0; i < y.length; i++) y[i] += bias[i % bias.length];
    return y;
  }
  norm(name, x) {
    const gain = this.tensors[name + ".weight"].data, bias = this.tensors[name + ".bias"].data, d = gain.length;
    const y = new Float32Array(x.length);
    for (let o = 0; o < x.length; o += d) {
      let mean = 0, variance = 0;
      for (let i = 0; i < d; i++) mean += x[o + i] / d;
      for (let i = 0; i < d; i++) variance += (x[o + i] - mean) ** 2 / d;
      const scale = 1 / Math.sqrt(variance + 1e-6);
      for (let i = 0; i < d; i++) y[o + i] = (x[o + i] - mean) * scale * gain[i] + bias[i];
    }
    return y;
  }
  residual(name, x, sublayer) { // LayerNorm(x + Sublayer(x)), or with pre_norm x + Sublayer(LayerNorm(x))
    const y = sublayer(this.config.pre_norm ? this.norm(name + ".norm", x) : x), sum = new Float32Array(x.length);
    for (let i = 0; i < x.length; i++) sum[i] = x[i] + y[i];
    return this.config.pre_norm ? sum : this.norm(name + ".norm", sum);
  }
  last(stack, x) {
    return this.config.pre_norm ? this.norm(`${stack}_norm`, x) : x;
  }
  embed(ids, first, table = "embedding") {
    const d = this.config.d_model, E = this.tensors[table + ".weight"].data, x = new Float32Array(ids.length * d);
    for (let r = 0; r < ids.length; r++) {
      const position = this.position(first + r);
      for (let i = 0; i < d; i++) x[r * d + i] = E[ids[r] * d + i] * Math.sqrt(d) + position[i];
    }
    return x;
  }
  position(at) {
    const d = this.config.d_model, learned = this.tensors["positions.table"]?.data;
    if (learned) return learned.subarray(at * d, (at + 1) * d);
    this.sinusoids ??= [];
    return this.sinusoids[at] ??= Float32Array.from({ length: d }, (_, i) => {
      const angle = at / 10000 ** (2 * Math.floor(i / 2) / d);
      return i % 2 ? Math.cos(angle) : Math.sin(angle);
    });
  }
  // `seen(r)` gives, for row r: the keys and values that it sees, as lists of vectors, and its position as a query.
  attend(name, place, x, rows, seen, changes, kept) {
    const { n_heads, d_k, d_v } = this.config, width = n_heads * d_v, scale = 1 / Math.sqrt(d_k);
    const Q = this.linear(name + ".query", x, rows), outputs = new Float32Array(rows * width);
    for (let h = 0; h < n_heads; h++) {
      const head = `${place}.${h}`, constant = changes.outputs.get(head);
      for (let r = 0; r < rows; r++) {
        const { keys, values, query } = seen(r), scores = new Float32Array(keys.length),
          from = r * n_heads * d_k + h * d_k;
        for (let j = 0; j < keys.length; j++) {
          let sum = 0;
          for (let i = 0, key = keys[j], k = h * d_k; i < d_k; i++) sum += Q[from + i] * key[k + i];
          scores[j] = sum * scale;
        }
        const weights = changes.weights(head, query, scores), to = r * width + h * d_v;
        if (kept) (kept[head] ??= []).push(weights);
        for (let j = 0; j < keys.length; j++) {
          for (let i = 0, value = values[j], v = h * d_v, w = weights[j]; i < d_v;
            i++) outputs[to + i] += w * value[v + i];
        }
        if (constant) outputs.set(constant, to);
      }
    }
    kept?.outputs?.(place, outputs);
    return this.linear(name + ".output", outputs, rows);
  }
  memories(name, x, rows) { // keys and values of each row
    const { n_heads, d_k, d_v } = this.config;
    return { keys: rowsOf(this.linear(name + ".key", x, rows), n_heads * d_k),
      values: rowsOf(this.linear(name + ".value", x, rows), n_heads * d_v) };
  }
  feedForward(name, x, rows) {
    const inner = this.linear(name + ".inner", x, rows);
    for (let i = 0; i < inner.length; i++) if (inner[i] < 0) inner[i] = 0;
    return this.linear(name + ".outer", inner, rows);
  }
  // for each layer of the decoder, the keys and values of its cross-attention
  encode(ids, changes = new Changes({}, this), kept = null) {
    const table = this.tensors["src_embedding.weight"] ? "src_embedding" : "embedding", rows = ids.length;
    let x = this.embed(ids, 0, table);
    for (let layer = 0; layer < this.config.n_layers; layer++) {
      const name = `encoder.${layer}`;
      x = this.residual(name + ".residuals.0", x, y => {
        const memory = this.memories(name + ".self_attention", y, rows);
        return this.attend(name + ".self_attention", name, y, rows, r => ({ ...memory, query: r }), changes, kept);
      });
      x = this.residual(name + ".residuals.1", x, y => this.feedForward(name + ".feed_forward", y, rows));
    }
    x = this.last("encoder", x);
    return Array.from({ length: this.config.n_layers },
      (_, layer) => this.memories(`decoder.${layer}.cross_attention`, x, rows));
  }
  // Rows that stand at positions first, first + 1, ... of one output (`past` null), or at the same position `first`
  // of several, each with
  // its own past: a list of keys and values a layer, to which the new ones are added. Gives the logits of what follows.
  decode(ids, first, memory, past, changes, kept = null) {
    const rows = ids.length, at = r => past ? first : first + r;
    let x = past ? this.joined(ids.map(id => this.embed([id], first))) : this.embed(ids, first);
    for (let layer = 0; layer < this.config.n_layers; layer++) {
      const name = `decoder.${layer}`;
      x = this.residual(name + ".residuals.0", x, y => {
        const { keys, values } = this.memories(name + ".self_attention", y, rows);
        const seen = past ? r => {
          const own = past[r][layer] = {
            keys: [...past[r][layer].keys, keys[r]], values: [...past[r][layer].values, values[r]] };
          return { ...own, query: first };
        } : r => ({ keys: keys.slice(0, r + 1), values: values.slice(0, r + 1), query: r });
        const all = Array.from({ length: rows }, (_, r) => seen(r));
        return this.attend(name + ".self_attention", name, y, rows, r => all[r], changes, kept);
      });
      x = this.residual(name + ".residuals.1", x, y =>
        this.attend(name + ".cross_attention", `cross.${layer}`, y, rows, r => ({ ...memory[layer], query: at(r) }),
          changes, kept));
      x = this.residual(name + ".residuals.2", x, y => this.feedForward(name + ".feed_forward", y, rows));
    }
    return rowsOf(this.product(this.tensors["embedding.weight"], this.last("decoder", x), rows),
      this.tensors["embedding.weight"].shape[0]);
  }
  joined(parts) {
    const x = new Float32Array(parts.length * parts[0].length);
    parts.forEach((part, r) => x.set(part, r * part.length));
    return x;
  }
  nothing() { // the past of an output that begins
    return Array.from({ length: this.config.n_layers }, () => ({ keys: [], values: [] }));
  }

  // --- search: the output's tokens, the end token last unless the limit cut it -------------------------------------
  // Greedy search keeps weights and logits on its way, which `read` would have to compute again.
  longest(src, extra = 50) { return Math.min(src.length + extra, this.limit); }

  greedy(src, changes = new Changes({}, this), kept = null) {
    const memory = this.encode(src, changes, kept), past = [this.nothing()], output = [], rows = [];
    while (output.length < this.longest(src) && output.at(-1) !== END) {
      const [logits] = this.decode([output.at(-1) ?? START], output.length, memory, past, changes, kept);
      rows.push(logits);
      let best = END;
      for (let i = END + 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
      output.push(best);
    }
    return { output, rows };
  }
  // as plain_beam_search: a finished output keeps its place
  beam(src, size = 4, alpha = 0.6, changes = new Changes({}, this)) {
    const memory = this.encode(src, changes), finished = [], limit = this.longest(src);
    let open = [{ total: 0, output: [], past: this.nothing() }];
    for (let length = 1; length <= limit && open.length; length++) {
      const pasts = open.map(({ past }) => [...past]), newest = open.map(({ output }) => output.at(-1) ?? START);
      const rows = this.decode(newest, length - 1, memory, pasts, changes), found = [];
      rows.forEach((logits, r) => {
        const z = logSumExp(logits);
        logits[PAD] = logits[UNKNOWN] = logits[START] = -Infinity;
        for (const id of largest(logits, size)) found.push({
          total: open[r].total + logits[id] - z, output: [...open[r].output, id], past: pasts[r] });
      });
      found.sort((a, b) => b.total - a.total).length = Math.min(found.length, size - finished.length);
      open = [];
      for (const one of found) {
        if (one.output.at(-1) === END
          || length === limit) finished.push({ score: one.total / ((5 + length) / 6) ** alpha, output: one.output });
        else open.push(one);
      }
    }
    return finished.reduce((a, b) => b.score > a.score ? b : a);
  }
  // An output that is given: all weights, and the logits at each position. Query i has read input i and writes output
  // i.
  read(src, output, changes = new Changes({}, this), kept = null) {
    return this.decode([START, ...output.slice(0, -1)], 0, this.encode(src, changes, kept), null, changes, kept);
  }
}

function largest(x, n) { // the places of the n largest, largest first; of equals, the first
  const best = [];
  for (let i = 0; i < x.length; i++) {
    if (best.length === n && !(x[i] > x[best[n - 1]])) continue;
    let at = best.length;
    while (at && x[i] > x[best[at - 1]]) at--;
    best.splice(at, 0, i);
    if (best.length > n) best.pop();
  }
  return best;
}
