// Runs the page's engine in Node: node explore_node.js FOLDER_OF_SCRIPTS < {config, files, averages, requests} as JSON
const fs = require("fs"), path = require("path"), vm = require("vm");
globalThis.KERNEL = fs.readFileSync(path.join(process.argv[2], "kernel.wasm"), "base64");
const scripts = ["vocabulary.js", "model.js", "kernel.js", "engine.js"].map(name => fs.readFileSync(path.join(process.argv[2], name), "utf8"));
vm.runInThisContext(scripts.join("\n") + "\nglobalThis.Engine = Engine;");
const { files, averages, requests, plain } = JSON.parse(fs.readFileSync(0, "utf8"));
const buffer = name => { const bytes = fs.readFileSync(name); return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length); };
const vocabulary = name => name && { name, content: buffer(name) };
const answers = [], engine = new Engine();
(async () => {
  answers.push(engine.open({
    config: JSON.parse(fs.readFileSync(files.config)), vocabulary: vocabulary(files.vocabulary), sourceVocabulary: vocabulary(files.sourceVocabulary),
    weights: buffer(files.weights), averages, plain }));
  for (const { method, given } of requests) answers.push(await engine[method](given, () => {}));
  process.stdout.write(JSON.stringify(answers, (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value));
})().catch(error => { process.stderr.write(error.message + "\n"); process.exitCode = 1; });
