// Trains one setting without a page and prints what became of it as JSON:
//   node headless.js '{"scale": false, "n_heads": 1, "seed": 2, "updates": 400, "every": 100}' "The king sees the woman." ...
// What is not given: USUAL of trainer.js; 64 sentences a batch, 400 updates, measured every 50, on 200 unseen sentences.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const text = name => fs.readFileSync(path.join(__dirname, name), "utf8");
const SCRIPTS = ["vocabulary.js", "kernel.js", "trainer.js", "text.js"];

// The page's scripts in this process, and names of theirs as globals.
function load(names = SCRIPTS, more = []) {
  globalThis.KERNEL = fs.readFileSync(path.join(__dirname, "kernel.wasm"), "base64");
  globalThis.GRAMMAR = fs.readFileSync(path.join(__dirname, "../grammar/playground.txt"), "utf8");
  vm.runInThisContext(names.map(text).join("\n")
    + `\nObject.assign(globalThis, { Trainer, Language, randoms, written, START, END, ${more} });`);
}

function train({ batch = 64, updates = 400, every = 50, unseen = 200, ...config }, sentences) {
  const language = new Language(GRAMMAR), trainer = new Trainer({ vocab_size: language.size, ...config }), c = trainer.config;
  const draw = randoms(7), next = randoms(c.seed + 1000), seen = new Set(), tests = [], curve = [];
  const key = pair => pair[0].join(" ");
  while (tests.length < unseen) {
    const pair = language.sentence(draw);
    if (!seen.has(key(pair))) { seen.add(key(pair)); tests.push(language.encode(pair)); }
  }
  const begin = process.hrtime.bigint();
  let sum = 0, spent = 0;
  for (let step = 1; step <= updates; step++) {
    const pairs = [], from = process.hrtime.bigint();
    while (pairs.length < batch) {
      const pair = language.sentence(next);
      if (!seen.has(key(pair))) pairs.push(language.encode(pair));
    }
    sum += trainer.update(pairs);
    spent += Number(process.hrtime.bigint() - from) / 1e9;
    if (step % every === 0 || step === updates) {
      const { loss, exact, rows } = trainer.score(tests), n = (step - 1) % every + 1;
      const own = c.causal_mask ? rows : trainer.written(tests), whole = row => row.every(Boolean);
      curve.push({ step, loss: sum / n, unseen: loss, exact: own.filter(whole).length / unseen, next: c.causal_mask ? exact : null });
      sum = 0;
    }
  }
  const source = line => language.encode([language.read(line), []])[0];
  return {
    config: c, batch, updates, weights: trainer.size, words: language.size, curve, exact: curve.at(-1).exact,
    loss: curve.at(-1).loss, updates_per_second: updates / spent,
    seconds: Number(process.hrtime.bigint() - begin) / 1e9, megabytes: trainer.peak / 1e6,
    translations: Object.fromEntries(sentences.map(line => [line,
      written(language.words(trainer.translate([source(line)])[0]))])),
  };
}

module.exports = { load, train };
if (require.main === module) {
  load();
  try {
    const [, , config = "{}", ...sentences] = process.argv;
    process.stdout.write(JSON.stringify(train(JSON.parse(config), sentences)) + "\n");
  } catch (error) { process.stderr.write(error.message + "\n"); process.exitCode = 2; }
}
