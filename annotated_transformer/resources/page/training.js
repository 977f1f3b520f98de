// The playground's training: begins a setting, trains and reports, hands out the weights. Answers the page's `connect`.
"use strict";
const BATCH = 64, UNSEEN = 200, WRITTEN = 40, EVERY = 500; // pairs, pairs, pairs without the mask, milliseconds

const channel = new MessageChannel();
const breathe = () => new Promise(done => { // lets a message in, sooner than a timeout does
  channel.port1.onmessage = done;
  channel.port2.postMessage(0);
});

class Training {
  constructor() { this.language = new Language(GRAMMAR); }
  // setting: what differs from USUAL; shown: pairs of sentences to translate in each report; mapped: one of them
  begin({ setting, shown, mapped }) {
    const { language } = this, draw = randoms(7);
    this.job = null;
    this.trainer = new Trainer({ vocab_size: language.size, ...setting });
    this.random = randoms(this.trainer.config.seed + 1000);
    this.shown = shown.map(pair => language.encode(pair.map(side => side.split(" "))));
    this.known = new Set(shown.map(([english]) => english)); // never trained on
    this.unseen = this.drawn(UNSEEN, draw, pair => this.known.add(pair[0].join(" ")));
    Object.assign(this, { mapped, spent: 0 });
    return this.report();
  }
  drawn(n, random, each = () => {}) {
    const pairs = [];
    while (pairs.length < n) {
      const pair = this.language.sentence(random);
      if (this.known.has(pair[0].join(" "))) continue;
      each(pair);
      pairs.push(this.language.encode(pair));
    }
    return pairs;
  }
  async train({ until, enough }, report) { // enough: of a report's sentences, to end with
    const job = this.job = {}, { trainer } = this, begun = performance.now() - this.spent;
    let last = performance.now();
    while (this.job === job && trainer.step < until) {
      trainer.update(this.drawn(BATCH, this.random));
      const now = performance.now();
      this.spent = now - begun;
      if (now - last >= EVERY) {
        const made = this.report();
        if (made.right >= enough * made.of) return made;
        report(made);
        last = performance.now();
      }
      await breathe();
    }
    return this.trainer === trainer ? this.report() : null;
  }
  report() {
    const { trainer, language, shown, mapped, spent } = this, { causal_mask } = trainer.config;
    // without the mask the decoder's input holds the answer: only what it writes by itself counts
    const pairs = causal_mask ? this.unseen : this.unseen.slice(0, WRITTEN), { loss, rows } = trainer.score(pairs);
    const right = (causal_mask ? rows : trainer.written(pairs)).filter(row => row.every(Boolean)).length;
    const german = trainer.translate(shown.map(pair => pair[0])).map(ids => language.words(ids));
    const [source, target] = shown[mapped];
    return { step: trainer.step, seconds: spent / 1000, loss, right, of: pairs.length, german,
      words: language.size, maps: trainer.maps(source, target.slice(0, -1)) };
  }
  exported() {
    const sentences = this.unseen.map(([source]) => written(this.language.words(source.slice(0, -1))));
    return { ...this.trainer.exported(this.language), sentences };
  }
}
