// What the page asks of a model. Runs in a worker (or, where there is none, beside the page) and answers messages.
"use strict";
const STACKS = ["encoder", "decoder", "cross"], FARTHEST = 32, MOST_TOKENS = 128;

const pause = () => new Promise(done => setTimeout(done)); // lets a message in

// One of these runs at a time: what takes long notes itself as the `job`, and ends where it no longer is.
class Engine {
  // files: config.json as an object, vocabularies and weights as buffers; averages: {means, offsets} or null
  open({ config, vocabulary, sourceVocabulary, weights, averages, plain }) {
    const normaliser = config.data?.normaliser, tensors = readTensors(weights);
    const means = averages && Object.fromEntries(Object.entries(averages.means)
      .map(([name, mean]) => [name, Float32Array.from(mean)]));
    const model = new Model(config, tensors, means, plain ? product : fastProduct(tensors) ?? product);
    const own = readVocabulary(vocabulary.content, vocabulary.name, normaliser);
    const source = sourceVocabulary ? readVocabulary(sourceVocabulary.content, sourceVocabulary.name, normaliser) : own;
    const [size] = model.tensors["embedding.weight"].shape;
    if (own.size !== size) throw new Error("these weights were trained with another vocabulary");
    Object.assign(this, { model, offsets: averages?.offsets, vocabulary: own, source }); // all or nothing
    this.trained = new Map(); // sentence -> its greedy translation as trained
    return { offsets: this.offsets ?? null };
  }
  encode(text) {
    const ids = [...this.source.encode(text), END], most = Math.min(MOST_TOKENS, this.model.limit);
    return ids.length <= most ? ids : [...ids.slice(0, most - 1), END];
  }
  changes(given) { return new Changes(given, this.model); }

  // A sentence under some changes; `held` is an output to read instead of searching for one.
  translate({ text, beams = 1, changes, held = null }) {
    const changed = this.changes(changes), src = this.encode(text), kept = {};
    const cut = this.source.encode(text).length + 1 > src.length;
    const search = () => src.length === 1 ? { output: [END] } : beams === 1 ? this.model.greedy(src, changed, kept)
      : this.model.beam(src, beams, 0.6, changed);
    const { output, rows } = held ? { output: held } : search();
    const next = (rows ?? this.model.read(src, output, changed, kept)).map((row, i) => {
      const z = logSumExp(row);
      return { log: row[output[i]] - z, first: largest(row, 5).map(id => [this.name(id), Math.exp(row[id] - z)]) };
    });
    return {
      text: this.vocabulary.decode(output), output, src: src.map(id => this.name(id, this.source)),
        read: [START, ...output.slice(0, -1)].map(id => this.name(id)),
      written: output.map(id => this.name(id)), next, maps: kept, cut,
    };
  }
  name(id, vocabulary = this.vocabulary) { return id === UNKNOWN ? UNKNOWN_MARK : vocabulary.piece(id); }

  *places(stacks = STACKS) {
    const { n_layers, n_heads } = this.model.config;
    for (const stack of stacks) for (let layer = 0; layer < n_layers; layer++) for (let head = 0; head < n_heads;
      head++) yield { stack, layer, head };
  }
  // The log-probability of an output, or of one of its tokens, under changes.
  score(src, output, token, changes) {
    const logs = this.model.read(src, output, changes).map((row, i) => token === null || i === token
      ? row[output[i]] - logSumExp(row) : 0);
    return logs.reduce((a, b) => a + b);
  }
  // Every head (off, or at its mean), or every edge of one head, by what the change does to that log-probability.
  async rank({ text, output, token, what, place, how }, report) {
    const job = this.job = {}, src = this.encode(text), kept = {}, tried = [];
    this.model.read(src, output, undefined, kept);
    const base = this.score(src, output, token);
    const heavy = function* (stack, layer, head) { // what has no weight can do nothing
      const rows = kept[`${stack}.${layer}.${head}`];
      for (let query = 0; query < rows.length; query++) for (let key = 0; key < rows[query].length; key++) {
        if (rows[query][key] >= 0.02) yield { stack, layer, head, query, key, to: null, weight: rows[query][key] };
      }
    };
    const list = what === "heads" ? [...this.places()] : [...heavy(place.stack, place.layer, place.head)];
    const least = what === "heads" ? 0 : 0.5 * Math.max(...list.map(edge => edge.weight));
    const others = what === "heads" ? []
      : drawn(20, [...this.places([place.stack])].filter(({ layer, head }) => layer !== place.layer
      || head !== place.head)
      .flatMap(({ stack, layer, head }) => [...heavy(stack, layer, head)]).filter(edge => edge.weight >= least), 1);
    const all = [...list, ...others];
    for (const one of all) {
      const change = what === "heads" ? { heads: { [`${one.stack}.${one.layer}.${one.head}`]: how } }
        : { edges: [one] };
      tried.push({ ...one, change: this.score(src, output, token, this.changes(change)) - base });
      if (tried.length % 8 === 0) { report(tried.length / all.length); await pause(); }
      if (this.job !== job) return null;
    }
    const [found, control] = [tried.slice(0, list.length), what === "heads" ? tried : tried.slice(list.length)];
    const sizes = control.map(({ change }) => Math.abs(change)).sort((a, b) => a - b);
    return {
      base, found: found.sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, 12), tried: list.length,
        least,
      random: { n: sizes.length, median: sizes[sizes.length >> 1] ?? 0, most: sizes.at(-1) ?? 0 },
    };
  }

  // --- many sentences ----------------------------------------------------------------------------------------------
  asTrained(text) {
    if (!this.trained.has(text)) this.trained.set(text, this.model.greedy(this.encode(text)).output);
    return this.trained.get(text);
  }
  // How an edge is named in other sentences: by its query's token, and by the rank of its keys among the words that
  // the query looks at.
  described({ text, output, changes }) {
    const kept = {}, src = this.encode(text);
    this.model.read(src, output, undefined, kept);
    return (changes.edges || []).map(edge => {
      const order = ranked(this.weights(kept, edge), edge.stack);
      return { ...edge, token: this.tokens(edge.stack, src, output)[edge.query], rank: order.indexOf(edge.key),
        toRank: edge.to === null ? null : order.indexOf(edge.to) };
    });
  }
  // a query of the decoder goes by what it writes
  tokens(stack, src, output) { return stack === "encoder" ? src : output; }
  weights(kept, { stack, layer, head, query }) { // of one head, or the mean of a layer's
    const { n_heads } = this.model.config, heads = head === null ? [...Array(n_heads).keys()] : [head];
    const rows = heads.map(h => kept[`${stack}.${layer}.${h}`][query]);
    return rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);
  }
  // The same changes in each sentence, and beside them the same in a head drawn at random.
  async count({ sentences, text, output, changes }, report) {
    const job = this.job = {}, edges = this.described({ text, output, changes }),
      heads = Object.entries(changes.heads || {}), random = randoms(7);
    const { n_layers, n_heads } = this.model.config;
    // whether there is no other place to try
    const alone = [...edges, ...heads.map(([head]) => ({ head }))].some(({ head }) =>
      n_layers * (head === null ? 1 : n_heads) === 1);
    const tally = { n: 0, changed: 0, control: alone ? null : 0, read: 0, swaps: {}, examples: [],
      edges: edges.map(({ token, stack, rank, toRank, ...edge }) =>
      ({ ...edge, stack, rank, toRank, token: (stack === "encoder" ? this.source : this.vocabulary).piece(token) })) };
    const elsewhere = ({ stack, layer, head }) => {
      for (;;) {
        const other = { stack, layer: Math.floor(random() * n_layers),
          head: head === null ? null : Math.floor(random() * n_heads) };
        if (other.layer !== layer || other.head !== head) return other;
      }
    };
    for (const sentence of sentences) {
      const src = this.encode(sentence), before = this.asTrained(sentence), kept = {};
      if (edges.length) this.model.read(src, before, undefined, kept);
      const placed = edge => this.tokens(edge.stack, src, before).flatMap((token, query) => {
        if (token !== edge.token) return [];
        const order = ranked(this.weights(kept, { ...edge, query }), edge.stack), key = order[edge.rank],
          to = edge.toRank === null ? null : order[edge.toRank];
        return key === undefined || to === undefined ? []
          : [{ stack: edge.stack, layer: edge.layer, head: edge.head, query, key, to }];
      });
      const here = edges.flatMap(placed);
      tally.read++;
      if (here.length || heads.length) {
        const now = this.model.greedy(src, this.changes({ heads: Object.fromEntries(heads), edges: here })).output;
        tally.n++;
        if (!alone) {
          const moved = edges.flatMap(edge => placed({ ...edge, ...elsewhere(edge) }));
          const others = heads.map(([name, how]) => {
            const [stack, layer, head] = name.split("."), other = elsewhere({ stack, layer: +layer, head: +head });
            return [`${stack}.${other.layer}.${other.head}`, how];
          });
          const control = this.model.greedy(src, this.changes({ heads: Object.fromEntries(others), edges: moved }));
          tally.control += String(control.output) !== String(before);
        }
        if (String(now) !== String(before)) {
          tally.changed++;
          const pair = { sentence, before: this.vocabulary.decode(before), now: this.vocabulary.decode(now) };
          for (const swap of swaps(pair.before, pair.now)) tally.swaps[swap] = (tally.swaps[swap] || 0) + 1;
          if (tally.examples.length < 5) tally.examples.push(pair);
        }
      }
      report(tally.read / sentences.length);
      await pause();
      if (this.job !== job) return null;
    }
    return tally;
  }
  // The mean output of each head, and its mean weight by offset, over sentences and their translations.
  async average({ sentences }, report) {
    const job = this.job = {}, { n_layers, n_heads, d_v } = this.model.config, sums = {}, counts = {}, means = {},
      size = 2 * FARTHEST + 2;
    const weights = Object.fromEntries([...this.places()].map(({ stack, layer, head }) =>
      [`${stack}.${layer}.${head}`, [new Float64Array(size), new Float64Array(size)]]));
    for (const [number, sentence] of sentences.entries()) {
      const kept = {};
      Object.defineProperty(kept, "outputs", { enumerable: false, value: (place, outputs) => {
        sums[place] ??= new Float64Array(n_heads * d_v);
        for (let i = 0; i < outputs.length; i++) sums[place][i % (n_heads * d_v)] += outputs[i];
        counts[place] = (counts[place] || 0) + outputs.length / (n_heads * d_v);
      } });
      this.model.read(this.encode(sentence), this.asTrained(sentence), undefined, kept);
      for (const [name, [sum, n]] of Object.entries(weights)) kept[name].forEach((row, query) =>
        row.forEach((weight, key) => {
        const at = offsetPlace(query, key, row.length, name.split(".")[0]);
        sum[at] += weight; n[at]++;
      }));
      report((number + 1) / sentences.length);
      await pause();
      if (this.job !== job) return null;
    }
    for (const { stack, layer, head } of this.places()) {
      const place = `${stack}.${layer}`;
      means[`${place}.${head}`] = Float32Array.from(sums[place].subarray(head * d_v, (head + 1) * d_v),
        sum => sum / counts[place]);
    }
    this.model.means = means;
    this.offsets = Object.fromEntries(Object.entries(weights)
      .map(([name, [sum, n]]) => [name, Array.from(sum, (s, i) => n[i] ? s / n[i] : null)]));
    return { offsets: this.offsets };
  }
}

// as annotated_transformer.inside.intervening.offsets; the decoder's start token is its first key
function offsetPlace(query, key, keys, stack) {
  if (key === (stack === "decoder" ? 0 : keys - 1)) return 2 * FARTHEST + 1;
  return Math.max(-FARTHEST, Math.min(FARTHEST, key - query)) + FARTHEST;
}
function ranked(weights, stack) { // keys by weight, heaviest first, the token that is no word left out
  const keys = [...weights.keys()].filter(key => key !== (stack === "decoder" ? 0 : weights.length - 1));
  return keys.sort((a, b) => weights[b] - weights[a]);
}
function drawn(n, from, seed) {
  const random = randoms(seed), rest = [...from], out = [];
  while (out.length < n && rest.length) out.push(rest.splice(Math.floor(random() * rest.length), 1)[0]);
  return out;
}

// Which words of two lists belong together: the longest common subsequence. Gives the places of those that went and
// came, and both side by side.
function changedWords(a, b) {
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  }
  const gone = new Set(), fresh = new Set(), pairs = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { i++; j++; continue; }
    const from = [i, j];
    while ((i < a.length || j < b.length) && !(i < a.length && j < b.length && a[i] === b[j])) {
      if (j >= b.length || (i < a.length && best[i + 1][j] >= best[i][j + 1])) gone.add(i++);
      else fresh.add(j++);
    }
    pairs.push([a.slice(from[0], i).join(" "), b.slice(from[1], j).join(" ")]);
  }
  return { gone, fresh, pairs };
}
function swaps(before, now) { // punctuation left out
  const words = line => line.replace(/[^\p{L}\p{N} ]/gu, "").split(" ");
  return changedWords(words(before), words(now))
    .pairs.map(([a, b]) => `${a || "(nothing)"} \u2192 ${b || "(nothing)"}`);
}
