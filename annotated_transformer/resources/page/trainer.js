// The encoder-decoder of annotated_transformer.model, trained in the page: forward, backward, Adam, greedy search.
//
//   const language = new Language(GRAMMAR);                // text.js
//   const trainer = new Trainer({ vocab_size: language.size, seed: 1, scale: false }); // what is not given: USUAL
//   const pairs = [language.encode(language.sentence(random)), ...];                   // [[source ids], [target ids]]
//   trainer.update(pairs)          one update; the loss before it. Throws where it is no longer a number.
//   trainer.step, trainer.rate()   updates so far, the learning rate of the next one
//   trainer.score(pairs)           { loss, exact, rows }: rows[i][j], whether pair i's token j is predicted right
//   trainer.translate(sources)     greedy search: a list of ids for each, without END
//   trainer.written(pairs)         as score's rows, after what the model itself wrote (for causal_mask: false)
//   trainer.maps(source, read)     { "encoder.0": [head][query][key], "decoder.0": ..., "cross.0": ... }
//   trainer.weights, trainer.size, trainer.flops, trainer.peak (bytes in use), trainer.c (the whole configuration)
"use strict";

// C[m, n] = (C +) A B, with B [k, n] in rows and n a multiple of 4. Element (i, k) of A lies at A + i ai + k ak, so the
// same code serves x W^T (W transposed once an update), dY W and dY^T x (ai and ak exchanged). Strides are in bytes.
function assembled(fused) {
  const [A, B, C, M, N, K, AI, AK, LDB, LDC, ADD, J, I, KK, PB, ROW, OUT, P0, P1, P2, P3] = Array(21).keys();
  const ACC = [21, 22, 23, 24, 25, 26, 27, 28], VB = [29, 30], VA = 31, P = [P0, P1, P2, P3];
  const leb = n => { const b = []; do { b.push((n & 127) | (n > 127 ? 128 : 0)); n >>>= 7; } while (n); return b; };
  const get = i => [0x20, i], set = i => [0x21, i], num = n => [0x41, n], plus = 0x6a, minus = 0x6b;
  const inc = (i, by) => [...get(i), ...by, plus, ...set(i)];
  const load = at => [0xfd, 0x00, 2, at], splat = [0xfd, 0x09, 2, 0], store = at => [0xfd, 0x0b, 2, at];
  const zero = [0xfd, 0x0c, ...Array(16).fill(0)];
  const atLeast = (i, n, body) => // while (local i >= n) body
    [0x02, 0x40, 0x03, 0x40, ...get(i), ...num(n), 0x49, 0x0d, 1, ...body, 0x0c, 0, 0x0b, 0x0b];
  const tile = (rows, width) => {
    const cells = [...Array(rows * width).keys()], r = c => Math.floor(c / width), w = c => c % width;
    const fma = c => fused ? [...get(VA), ...get(VB[w(c)]), ...get(ACC[c]), 0xfd, 0x85, 0x02, ...set(ACC[c])]
      : [...get(VA), ...get(VB[w(c)]), 0xfd, 0xe6, 0x01, ...get(ACC[c]), 0xfd, 0xe4, 0x01, ...set(ACC[c])];
    const each = what => [...get(OUT), ...set(PB), ...[...Array(rows).keys()].flatMap(row => [
      ...cells.filter(c => r(c) === row).flatMap(what), ...inc(PB, get(LDC))])];
    return [
      ...get(ROW), ...set(P0), ...P.slice(1, rows).flatMap((p, i) => [...get(P[i]), ...get(AI), plus, ...set(p)]),
      ...get(ADD), 0x04, 0x40, ...each(c => [...get(PB), ...load(16 * w(c)), ...set(ACC[c])]),
      0x05, ...cells.flatMap(c => [...zero, ...set(ACC[c])]), 0x0b,
      ...get(B), ...set(PB), ...get(K), ...set(KK),
      0x03, 0x40,
      ...[...Array(width).keys()].flatMap(c => [...get(PB), ...load(16 * c), ...set(VB[c])]),
      ...P.slice(0, rows).flatMap((p, row) => [...get(p), ...splat, ...set(VA),
        ...cells.filter(c => r(c) === row).flatMap(fma), ...inc(p, get(AK))]),
      ...inc(PB, get(LDB)), ...get(KK), ...num(1), minus, 0x22, KK, 0x0d, 0, 0x0b,
      ...each(c => [...get(PB), ...get(ACC[c]), ...store(16 * w(c))])];
  };
  const rows = (n, width) => atLeast(I, n, [...tile(n, width), ...Array(n).fill([...inc(ROW, get(AI)),
    ...inc(OUT, get(LDC))]).flat(), ...get(I), ...num(n), minus, ...set(I)]);
  const columns = width => atLeast(J, 4 * width, [...get(M), ...set(I), ...get(A), ...set(ROW), ...get(C), ...set(OUT),
    ...rows(4, width), ...rows(1, width),
    ...inc(B, num(16 * width)), ...inc(C, num(16 * width)), ...get(J), ...num(4 * width), minus, ...set(J)]);
  const body = [...get(N), ...set(J), ...columns(2), ...columns(1), 0x0b];
  const sized = b => [...leb(b.length), ...b], section = (id, b) => [id, ...sized(b)];
  const text = s => sized([...new TextEncoder().encode(s)]);
  return new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [1, 0x60, 11, ...Array(11).fill(0x7f), 0]),
    ...section(2, [1, ...text("env"), ...text("memory"), 2, 0, 1]), ...section(3, [1, 0]),
    ...section(7, [1, ...text("product"), 0, 0]),
    ...section(10, [1, ...sized([2, 10, 0x7f, 11, 0x7b, ...body])])]);
}

// Numbers from 0 to below 1, the same for the same seed.
function randoms(seed) {
  let s = (seed * 2654435761 + 12345) | 0;
  return () => { s ^= s << 13; s ^= s >>> 17; s ^= s << 5; return (s >>> 0) / 4294967296; };
}

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
  for (const name of ["d_model", "d_ff", "vocab_size"]) {
    if (c[name] % 4) return `${name} is ${c[name]}: give a multiple of 4`;
  }
  if (c.d_model % (4 * c.n_heads)) {
    return `d_model is ${c.d_model} and n_heads ${c.n_heads}: each head takes d_model / n_heads, a multiple of 4`;
  }
  if (!(c.rate > 0)) return `rate is ${c.rate}: give a number above 0`;
  if (!(c.label_smoothing >= 0 && c.label_smoothing < 1)) return `label_smoothing is ${c.label_smoothing}: give 0 to below 1`;
  return null;
}

class Trainer {
  constructor(config = {}, { fused = true, megabytes = 96 } = {}) {
    const c = this.c = { ...USUAL, ...config }, d = c.d_model, f = c.d_ff, no = refused(c);
    if (no) throw new Error(no);
    this.shapes = [];
    const add = (name, ...shape) => this.shapes.push({ name, shape });
    const attention = name => ["query", "key", "value", "output"].forEach(w => add(`${name}.${w}.weight`, d, d));
    const norm = name => { if (c.norm) { add(`${name}.weight`, d); add(`${name}.bias`, d); } };
    add("embedding.weight", c.vocab_size, d);
    for (const stack of ["encoder", "decoder"]) for (let l = 0; l < c.n_layers; l++) {
      const name = `${stack}.${l}`, parts = stack === "encoder" ? ["self"] : ["self", "cross"];
      for (const part of parts) attention(`${name}.${part}_attention`);
      if (c.feed_forward) {
        add(`${name}.feed_forward.inner.weight`, f, d); add(`${name}.feed_forward.inner.bias`, f);
        add(`${name}.feed_forward.outer.weight`, d, f); add(`${name}.feed_forward.outer.bias`, d);
      }
      for (let r = 0; r < parts.length + (c.feed_forward ? 1 : 0); r++) norm(`${name}.residuals.${r}.norm`);
    }
    if (c.pre_norm) { norm("encoder_norm"); norm("decoder_norm"); }
    this.memory = new WebAssembly.Memory({ initial: megabytes * 16 });
    this.F = new Float32Array(this.memory.buffer);
    const load = fused => new WebAssembly.Instance(new WebAssembly.Module(assembled(fused)),
      { env: { memory: this.memory } }).exports.product;
    this.fused = fused && WebAssembly.validate(assembled(true)); // a fused multiply-add is "relaxed" SIMD
    this.product = load(this.fused);
    this.top = 16; this.step = 0; this.flops = 0; this.tape = null; this.random = randoms(c.seed + 1);
    const from = this.top;
    this.w = {};
    for (const { name, shape } of this.shapes) this.w[name] = this.tensor(shape[0], shape[1] ?? 1, false);
    const all = this.size = this.top - from;
    [this.weights, this.grads, this.m1, this.m2] = [0, 1, 2, 3].map(i => this.F.subarray(from + i * all,
      from + (i + 1) * all));
    for (const t of Object.values(this.w)) { t.dat = t.at + all; t.dv = this.F.subarray(t.dat, t.dat + t.v.length); }
    this.base = this.top = from + 4 * all;
    this.waves = Float32Array.from({ length: 64 * d }, (_, i) => {
      const angle = Math.floor(i / d) / 10000 ** (2 * Math.floor(i % d / 2) / d);
      return i % 2 ? Math.cos(angle) : Math.sin(angle);
    });
    this.initialise();
  }
  initialise() { // Xavier-uniform; what a sub-layer adds is smaller, by (8 n_layers)^(-1/4)
    const normal = () => Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    for (let i = 0; i < 20; i++) this.random();
    for (const { name, shape } of this.shapes) {
      const { v } = this.w[name], d = this.c.d_model;
      if (name === "embedding.weight") for (let i = 0; i < v.length; i++) v[i] = normal() / Math.sqrt(d);
      else if (shape.length === 1) v.fill(name.endsWith("weight") ? 1 : 0);
      else {
        const bound = (/query|key/.test(name) || !this.c.small_draw ? 1 : (8 * this.c.n_layers) ** -0.25) * Math.sqrt(6 / (shape[0] + shape[1]));
        for (let i = 0; i < v.length; i++) v[i] = bound * (2 * this.random() - 1);
      }
    }
  }
  // --- tensors: views into one memory, freed all at once ------------------------------------------------------------
  room(n) {
    const at = this.top;
    this.top += (n + 7) & ~3; // some to spare: a kernel may read past a row's end
    if (this.top > this.F.length) throw new Error(`${Math.ceil(this.F.length / 262144)} MB are not enough: a smaller width, fewer layers or a smaller batch`);
    return at;
  }
  tensor(rows, cols, graded = this.tape !== null) {
    const n = rows * cols, at = this.room(n), t = { rows, cols, at, v: this.F.subarray(at, at + n) };
    if (graded) { t.dat = this.room(n); t.dv = this.F.subarray(t.dat, t.dat + n).fill(0); }
    return t;
  }
  then(back) { this.tape?.push(back); }
  multiply(A, ai, ak, B, ldb, C, ldc, m, n, k, add) {
    this.flops += 2 * m * n * k;
    this.product(4 * A, 4 * B, 4 * C, m, n, k, 4 * ai, 4 * ak, 4 * ldb, 4 * ldc, add ? 1 : 0);
  }
  transposed(at, rows, cols) { // its address
    const to = this.room(rows * cols), F = this.F;
    for (let r = 0; r < rows; r++) for (let c = 0, p = at + r * cols; c < cols; c++) F[to + c * rows + r] = F[p + c];
    return to;
  }
  // --- the parts: each computes, and puts on the tape how its gradient goes back ------------------------------------
  linear(name, x, bias = false) { // x W^T (+ b)
    const W = this.w[name + ".weight"], rows = x.rows, m = W.rows, n = W.cols, y = this.tensor(rows, m);
    const b = bias && this.w[name + ".bias"], F = this.F;
    if (b) for (let r = 0; r < rows; r++) y.v.set(b.v, r * m);
    W.turned ??= this.transposed(W.at, m, n);
    this.multiply(x.at, n, 1, W.turned, m, y.at, m, rows, m, n, b);
    this.then(() => {
      this.multiply(y.dat, m, 1, W.at, n, x.dat, n, rows, n, m, true); // dY W
      this.multiply(y.dat, 1, m, x.at, n, W.dat, n, m, n, rows, true); // dY^T x
      if (b) for (let r = 0, p = y.dat; r < rows; r++) for (let i = 0; i < m; i++) b.dv[i] += F[p++];
    });
    return y;
  }
  // `q`, `k`, `v`: [rows, d_model]; `spans`: for each sentence, [first query, queries, first key, keys]
  attend(q, k, v, spans, causal, kept) {
    const { n_heads: H, d_model: d } = this.c, w = d / H, scale = this.c.scale ? 1 / Math.sqrt(w) : 1, F = this.F;
    const out = this.tensor(q.rows, d), turned = this.transposed(k.at, k.rows, d);
    const places = spans.map(([, n, , l]) => Array.from({ length: H }, () => this.room(n * ((l + 3) & ~3))));
    spans.forEach(([q0, n, k0, l], s) => {
      const ld = (l + 3) & ~3;
      for (let h = 0; h < H; h++) {
        const P = places[s][h], o = h * w;
        this.multiply(q.at + q0 * d + o, d, 1, turned + o * k.rows + k0, k.rows, P, ld, n, ld, w, false);
        for (let i = 0, p = P; i < n; i++, p += ld) {
          const end = causal ? i + 1 : l;
          let most = -Infinity, sum = 0;
          for (let j = 0; j < end; j++) if (F[p + j] > most) most = F[p + j];
          for (let j = 0; j < end; j++) sum += F[p + j] = Math.exp((F[p + j] - most) * scale);
          for (let j = 0; j < end; j++) F[p + j] /= sum;
          for (let j = end; j < ld; j++) F[p + j] = 0;
        }
        this.multiply(P, ld, 1, v.at + k0 * d + o, d, out.at + q0 * d + o, d, n, w, l, false);
        kept?.(s, h, P, n, l, ld);
      }
    });
    this.then(() => {
      const turned = this.transposed(v.at, v.rows, d), D = this.room(Math.max(...spans.map(([, n, , l]) => n * (l + 4))));
      spans.forEach(([q0, n, k0, l], s) => {
        const ld = (l + 3) & ~3;
        for (let h = 0; h < H; h++) {
          const P = places[s][h], o = h * w;
          this.multiply(P, 1, ld, out.dat + q0 * d + o, d, v.dat + k0 * d + o, d, l, w, n, true); // P^T dO
          this.multiply(out.dat + q0 * d + o, d, 1, turned + o * v.rows + k0, v.rows, D, ld, n, ld, w, false); // dO V^T
          for (let i = 0, p = P, e = D; i < n; i++, p += ld, e += ld) {
            let dot = 0;
            for (let j = 0; j < l; j++) dot += F[p + j] * F[e + j];
            for (let j = 0; j < ld; j++) F[e + j] = j < l ? F[p + j] * (F[e + j] - dot) * scale : 0;
          }
          this.multiply(D, ld, 1, k.at + k0 * d + o, d, q.dat + q0 * d + o, d, n, w, l, true); // dS K
          this.multiply(D, 1, ld, q.at + q0 * d + o, d, k.dat + k0 * d + o, d, l, w, n, true); // dS^T Q
        }
      });
    });
    return out;
  }
  attention(name, x, memory, spans, causal, kept) {
    const q = this.linear(name + ".query", x), k = this.linear(name + ".key", memory),
      v = this.linear(name + ".value", memory);
    return this.linear(name + ".output", this.attend(q, k, v, spans, causal, kept && ((...a) => kept(name, ...a))));
  }
  feedForward(name, x) {
    const y = this.linear(name + ".inner", x, true), F = this.F, n = y.v.length;
    for (let i = y.at; i < y.at + n; i++) if (F[i] < 0) F[i] = 0;
    this.then(() => { for (let i = 0; i < n; i++) if (F[y.at + i] === 0) F[y.dat + i] = 0; });
    return this.linear(name + ".outer", y, true);
  }
  norm(name, x) {
    if (!this.c.norm) return x;
    const { v: g, dv: dg } = this.w[name + ".weight"], { v: b, dv: db } = this.w[name + ".bias"], d = x.cols, F = this.F;
    const y = this.tensor(x.rows, d), at = this.room(x.rows), unit = this.room(x.v.length);
    for (let r = 0, p = x.at, u = unit, o = y.at; r < x.rows; r++, p += d, u += d, o += d) {
      let mean = 0, variance = 0;
      for (let i = 0; i < d; i++) mean += F[p + i];
      mean /= d;
      for (let i = 0; i < d; i++) { const e = F[p + i] - mean; variance += e * e; }
      const scale = F[at + r] = 1 / Math.sqrt(variance / d + 1e-6);
      for (let i = 0; i < d; i++) { const e = F[u + i] = (F[p + i] - mean) * scale; F[o + i] = e * g[i] + b[i]; }
    }
    this.then(() => {
      for (let r = 0, p = x.dat, u = unit, o = y.dat; r < x.rows; r++, p += d, u += d, o += d) {
        let mean = 0, dot = 0;
        for (let i = 0; i < d; i++) {
          const e = F[o + i], t = e * g[i];
          dg[i] += e * F[u + i]; db[i] += e; mean += t; dot += t * F[u + i];
        }
        mean /= d; dot /= d;
        for (let i = 0, s = F[at + r]; i < d; i++) F[p + i] += s * (F[o + i] * g[i] - mean - F[u + i] * dot);
      }
    });
    return y;
  }
  residual(name, x, sublayer) { // LayerNorm(x + Sublayer(x)), or with pre_norm x + Sublayer(LayerNorm(x))
    const { pre_norm, residual } = this.c, y = sublayer(pre_norm ? this.norm(name + ".norm", x) : x);
    let sum = y;
    if (residual) {
      const F = this.F, n = x.v.length;
      sum = this.tensor(x.rows, x.cols);
      for (let i = 0; i < n; i++) F[sum.at + i] = F[x.at + i] + F[y.at + i];
      this.then(() => {
        for (let i = 0; i < n; i++) { const e = F[sum.dat + i]; F[x.dat + i] += e; F[y.dat + i] += e; }
      });
    }
    return pre_norm ? sum : this.norm(name + ".norm", sum);
  }
  embed(sentences) { // their rows one below the other, without padding
    const E = this.w["embedding.weight"], d = this.c.d_model, ids = sentences.flat(), x = this.tensor(ids.length, d);
    const root = this.c.embedding_scale ? Math.sqrt(d) : 1, F = this.F, { waves } = this, positions = this.c.positions ? 1 : 0;
    let o = x.at;
    for (const sentence of sentences) for (let p = 0; p < sentence.length; p++) {
      const e = E.at + sentence[p] * d;
      for (let i = 0; i < d; i++) F[o++] = F[e + i] * root + positions * waves[p * d + i];
    }
    this.then(() => ids.forEach((id, r) => {
      for (let i = 0, e = E.dat + id * d, o = x.dat + r * d; i < d; i++) F[e + i] += F[o + i] * root;
    }));
    return x;
  }
  // --- Figure 1 -----------------------------------------------------------------------------------------------------
  starts(sentences) { let at = 0; return sentences.map(s => (at += s.length) - s.length); }
  encode(src, kept) {
    const first = this.starts(src), spans = src.map((s, i) => [first[i], s.length, first[i], s.length]);
    let x = this.embed(src);
    for (let l = 0; this.c.encoder && l < this.c.n_layers; l++) {
      const name = `encoder.${l}`;
      x = this.residual(name + ".residuals.0", x, y =>
        this.attention(name + ".self_attention", y, y, spans, false, kept));
      if (this.c.feed_forward) x = this.residual(name + ".residuals.1", x, y => this.feedForward(name + ".feed_forward", y));
    }
    return this.c.pre_norm ? this.norm("encoder_norm", x) : x;
  }
  decode(src, tgt, memory, kept) { // the logits
    const from = this.starts(src), first = this.starts(tgt);
    const own = tgt.map((t, i) => [first[i], t.length, first[i], t.length]),
      cross = tgt.map((t, i) => [first[i], t.length, from[i], src[i].length]);
    let x = this.embed(tgt);
    for (let l = 0; l < this.c.n_layers; l++) {
      const name = `decoder.${l}`;
      x = this.residual(name + ".residuals.0", x, y => this.attention(name + ".self_attention", y, y, own, this.c.causal_mask, kept));
      if (this.c.cross_attention) x = this.residual(name + ".residuals.1", x, y =>
        this.attention(name + ".cross_attention", y, memory, cross, false, kept));
      if (this.c.feed_forward) x = this.residual(name + ".residuals.2", x, y => this.feedForward(name + ".feed_forward", y));
    }
    return this.linear("embedding", this.c.pre_norm ? this.norm("decoder_norm", x) : x);
  }
  begin(training) {
    this.top = this.base; this.tape = training ? [] : null;
    for (const t of Object.values(this.w)) t.turned = undefined;
  }
  // Label-smoothed cross-entropy; the logits become the gradient's. Also says which rows were predicted right.
  loss(logits, wanted, right) {
    const V = logits.cols, e = this.c.label_smoothing, F = this.F, n = wanted.length;
    let total = 0;
    for (let r = 0, p = logits.at, g = logits.dat; r < n; r++, p += V, g += V) {
      let most = -Infinity, best = 0, sum = 0, all = 0;
      for (let i = 0; i < V; i++) { const x = F[p + i]; all += x; if (x > most) { most = x; best = i; } }
      const wrong = F[p + wanted[r]];
      right?.push(best === wanted[r]);
      if (this.tape) {
        for (let i = 0; i < V; i++) sum += F[g + i] = Math.exp(F[p + i] - most);
        for (let i = 0, s = 1 / (sum * n), q = e / V / n; i < V; i++) F[g + i] = F[g + i] * s - q;
        F[g + wanted[r]] -= (1 - e) / n;
      } else for (let i = 0; i < V; i++) sum += Math.exp(F[p + i] - most);
      total += most + Math.log(sum) - (1 - e) * wrong - e / V * all;
    }
    return total / n;
  }
  // `pairs`: [source with END, target between START and END]. Leaves the gradient in `grads`.
  gradient(pairs) {
    this.begin(true);
    this.grads.fill(0);
    const src = pairs.map(p => p[0]), tgt = pairs.map(p => p[1].slice(0, -1));
    const logits = this.decode(src, tgt, this.encode(src)), loss = this.loss(logits, pairs.flatMap(p => p[1].slice(1)));
    for (let i = this.tape.length; i--;) this.tape[i]();
    this.peak = Math.max(this.peak ?? 0, 4 * this.top);
    return loss;
  }
  rate() { // of the next update: equation 3 times `rate`; without warm-up constant, at its peak
    const { d_model, warmup_steps, rate, warmup } = this.c, s = warmup ? this.step + 1 : warmup_steps;
    return rate * d_model ** -0.5 * Math.min(s ** -0.5, s * warmup_steps ** -1.5);
  }
  adam() {
    const { weights: w, grads: g, m1, m2, size } = this, rate_ = this.rate(), s = ++this.step, a = 0.9, b = 0.98;
    const rate = rate_ / (1 - a ** s), scale = 1 / Math.sqrt(1 - b ** s);
    for (let i = 0; i < size; i++) {
      const e = g[i], m = m1[i] = a * m1[i] + (1 - a) * e, v = m2[i] = b * m2[i] + (1 - b) * e * e;
      w[i] -= rate * m / (Math.sqrt(v) * scale + 1e-9);
    }
  }
  update(pairs) {
    const loss = this.gradient(pairs);
    if (!Number.isFinite(loss)) throw new Error(`the loss is no longer a number after ${this.step} updates: a smaller rate`);
    this.adam();
    return loss;
  }
  // The loss of unseen pairs, and for each whether greedy search would write it exactly: each word right after the
  // right words before it.
  score(pairs) {
    this.begin(false);
    const src = pairs.map(p => p[0]), tgt = pairs.map(p => p[1].slice(0, -1)), right = [];
    const loss = this.loss(this.decode(src, tgt, this.encode(src)), pairs.flatMap(p => p[1].slice(1)), right);
    let at = 0;
    const rows = tgt.map(t => right.slice(at, at += t.length));
    return { loss, rows, exact: rows.filter(row => row.every(Boolean)).length / rows.length };
  }
  translate(sentences, longest = 24) { // greedy
    this.begin(false);
    const memory = this.encode(sentences), out = sentences.map(() => [START]);
    let open = sentences.map((_, i) => i), top = null;
    for (let n = 0; n < longest && open.length; n++) {
      if (top) this.top = top; // the weights' transposes stay below
      const logits = this.decode(sentences, out, memory), V = logits.cols;
      top ??= this.top;
      let row = -1;
      out.forEach((o, i) => {
        row += o.length;
        if (!open.includes(i)) return;
        let best = END;
        for (let v = END; v < V; v++) if (logits.v[row * V + v] > logits.v[row * V + best]) best = v;
        o.push(best);
      });
      open = open.filter(i => out[i].at(-1) !== END);
    }
    return out.map(o => o.slice(1, o.at(-1) === END ? -1 : undefined));
  }
  // Which tokens of the target the model writes by itself: without the mask of the future only this counts.
  written(pairs) {
    const found = this.translate(pairs.map(pair => pair[0]));
    return pairs.map((pair, i) => pair[1].slice(1).map((w, j) => (found[i][j] ?? END) === w));
  }
  maps(src, tgt) { // for one pair of sentences, name -> head -> rows of weights
    this.begin(false);
    const place = name => name.includes("cross") ? `cross.${name.split(".")[1]}` : name.slice(0, name.lastIndexOf("."));
    const found = {}, keep = (name, s, h, P, n, l, ld) => (found[place(name)] ??= [])[h] = Array.from({ length: n },
      (_, i) => [...this.F.subarray(P + i * ld, P + i * ld + l)]);
    this.decode([src], [tgt], this.encode([src], keep), keep);
    return found;
  }
}
