// Trains the page's settings in Node: node playground_node.js FOLDER_OF_SCRIPTS < [{config, updates, pairs, folder}, ...]
// With a folder, what was trained is written there as a run, and the live page's engine reads it, too.
const crypto = require("crypto"), fs = require("fs"), path = require("path");
const { load } = require(path.resolve(process.argv[2], "headless.js"));
load(["vocabulary.js", "model.js", "kernel.js", "engine.js", "trainer.js", "text.js"], ["Engine"]);
const language = new Language(GRAMMAR), base64 = values => Buffer.from(values.slice().buffer).toString("base64");
const answers = JSON.parse(fs.readFileSync(0, "utf8")).map(({ config, updates, pairs: n, folder }) => {
  const trainer = new Trainer({ vocab_size: language.size, ...config }), random = randoms(trainer.config.seed + 1000);
  const all = what => Object.fromEntries(Object.keys(trainer.shapes).map(name => [name, base64(trainer[what](name))]));
  const batches = Array.from({ length: updates }, () => Array.from({ length: n }, () => language.encode(language.sentence(random))));
  const start = all("values"), loss = trainer.gradient(batches[0]), gradients = all("gradients");
  const losses = batches.map(pairs => trainer.update(pairs)), sources = batches[0].map(pair => pair[0]);
  const found = trainer.translate(sources), maps = sources.map((ids, i) => trainer.maps(ids, [START, ...found[i]]));
  let engine = null;
  if (folder) {
    const { config, vocabulary, weights } = trainer.exported(language), live = new Engine();
    config.data.vocabulary = crypto.createHash("sha256").update(Buffer.from(vocabulary.content)).digest("hex");
    fs.writeFileSync(path.join(folder, "config.json"), JSON.stringify(config));
    fs.writeFileSync(path.join(folder, vocabulary.name), Buffer.from(vocabulary.content));
    fs.writeFileSync(path.join(folder, "averaged.safetensors"), Buffer.from(weights));
    live.open({ config, vocabulary, weights, averages: null });
    engine = sources.map(ids => live.translate({ text: written(language.words(ids.slice(0, -1))) }));
  }
  return { config: trainer.config, shapes: trainer.shapes, batches, start, loss, gradients, losses, end: all("values"), written: found, maps, engine,
    score: trainer.score(batches[0]), sentences: sources.map(ids => written(language.words(ids.slice(0, -1)))) };
});
process.stdout.write(JSON.stringify(answers, (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value));
