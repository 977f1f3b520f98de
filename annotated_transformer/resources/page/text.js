// English sentences and their German translations without end, drawn from a synchronous grammar as
// annotated_transformer.corpus.synchronous_grammar draws them: the same file and the same numbers give the same pairs.
"use strict";

const atomOf = text => { // NP[K,nom] -> ["NP", "K", "nom"]
  const [category, features = ""] = text.replace("]", "").split("[");
  return [category, ...features.split(",").filter(Boolean)];
};
const isVariable = feature => /^\p{Lu}/u.test(feature);
const sums = numbers => { let sum = 0; return numbers.map(n => sum += n); };

class Language {
  constructor(grammar) { // the text of the file
    this.atoms = new Map(); // NP,p,m,nom -> { words: [[English, German], ...], ways: [{ rule, instances, sums }], sums }
    this.known = {}; // category, or condition -> features of all its atoms
    for (const line of grammar.split("\n").filter(line => line && !line.startsWith("#"))) {
      const columns = line.split("|").map(column => column.trim()), items = columns[1].split(",").map(part => part.trim());
      if (columns.length > 2) this.fill(ruled(columns));
      else if (!columns[0].includes("[")) for (const item of items) this.know([columns[0], ...item.split(" ")]);
      else for (const atom of columns[0].split(" ").map(atomOf)) {
        const words = items.map(item => item.split(" ").map(word => word === "-" ? [] : [word]));
        Object.assign(this.know(atom), { words, noun: atom[0] === "N" });
      }
    }
    const nodes = [...this.atoms.values()], rules = nodes.flatMap(({ ways }) => ways.map(({ rule }) => rule));
    const own = rules.flatMap(({ sides }) => sides.flat()).filter(item => typeof item === "string");
    const all = new Set([...nodes.flatMap(({ words }) => words.flat(2)), ...own, "an"]);
    this.list = ["<pad>", "<unk>", "<s>", "</s>", ...[...all].sort()]; // id -> word; filled up to a multiple of 4
    while (this.list.length % 4) this.list.push("");
    this.ids = new Map(this.list.map((word, i) => [word, i]));
  }
  know(atom) {
    const name = String(atom), [category, ...features] = atom;
    if (!this.atoms.has(name)) {
      this.atoms.set(name, { words: [], ways: [], sums: [] });
      (this.known[category] ??= []).push(features);
    }
    return this.atoms.get(name);
  }
  // A rule with its variables filled in, in every way that what is known allows.
  fill(rule) {
    const found = new Map(), goals = [...[...rule.conditions].reverse(), ...rule.children];
    const filled = (atom, bound) => String(atom.map((f, i) => i && bound[f] || f));
    const solve = (n, bound) => {
      if (n < goals.length) {
        const [category, ...features] = goals[n];
        for (const atom of this.known[category] ?? []) {
          if (!features.every((f, i) => (isVariable(f) ? bound[f] ?? atom[i] : f) === atom[i])) continue;
          const next = { ...bound };
          features.forEach((f, i) => { if (isVariable(f)) next[f] = atom[i]; });
          solve(n + 1, next);
        }
        return;
      }
      const atom = filled(rule.left, bound);
      if (!found.has(atom)) found.set(atom, []);
      found.get(atom).push(rule.children.map(child => this.atoms.get(filled(child, bound))));
    };
    solve(0, {});
    // an atom's mass: how many words it has, or the sum of its rules' weights
    const mass = ({ words, sums }) => words.length || sums.at(-1);
    const ways = [...found].map(([atom, instances]) =>
      [atom, { rule, instances, sums: sums(instances.map(parts => parts.reduce((all, part) => all * mass(part), 1))) }]);
    for (const [name, way] of ways) {
      const atom = this.know(name.split(","));
      atom.ways.push(way);
      atom.sums.push((atom.sums.at(-1) ?? 0) + rule.weight);
    }
  }
  draw({ words, noun, ways, sums }, random, nouns) { // [English words, German words]
    if (words.length) {
      const word = words[Math.floor(random() * words.length)];
      if (noun) nouns.push(word[0][0]);
      return word;
    }
    const drawn = sums => { const x = random() * sums[sums.length - 1]; return sums.findIndex(sum => x < sum); };
    const { rule, instances, sums: masses } = ways[drawn(sums)], instance = instances[drawn(masses)], sides = [[], []];
    const parts = instance.map(part => this.draw(part, random, nouns));
    rule.sides.forEach((items, side) => {
      for (const item of items) {
        if (typeof item === "string") sides[side].push(item);
        else for (const word of parts[item][side]) sides[side].push(word);
      }
    });
    return sides;
  }

  get size() { return this.list.length; }
  sentence(random) { // no noun twice
    for (;;) {
      const nouns = [], [english, german] = this.draw(this.atoms.get("ROOT"), random, nouns);
      if (new Set(nouns).size === nouns.length) {
        return [english.map((word, i) => word === "a" && /^[aeiou]/.test(english[i + 1]) ? "an" : word), german];
      }
    }
  }
  encode([english, german]) { // [source ids with END, START + target ids + END]
    const id = word => this.ids.get(word) ?? UNKNOWN;
    return [[...english.map(id), END], [START, ...german.map(id), END]];
  }
  read(line) { // a sentence as one writes it, in words of this language
    return (line.match(/[\p{L}]+|[.,]/gu) ?? []).map((word, i) => i || this.ids.has(word) ? word : word.toLowerCase());
  }
  file() { // a vocabulary in the format of Hugging Face's tokenizers; English is written in small letters
    const token = (word, i) => i < 4 ? word : word ? (/\p{L}/u.test(word) ? WORD_START : "") + word : `<${i}>`;
    return new TextEncoder().encode(JSON.stringify({
      version: "1.0", added_tokens: [], normalizer: { type: "Lowercase" },
      pre_tokenizer: { type: "Sequence", pretokenizers: [
        { type: "Metaspace", replacement: WORD_START, prepend_scheme: "always", split: true },
        { type: "Punctuation", behavior: "Isolated" }] },
      model: { type: "WordPiece", unk_token: "<unk>", continuing_subword_prefix: "##", max_input_chars_per_word: 200,
        vocab: Object.fromEntries(this.list.map((word, i) => [token(word, i), i])) }, })).buffer;
  }
  words(ids) { return ids.map(id => this.list[id] || "\u2047"); } // some are there to fill it up
}

// A rule's columns. Of its two sides, own words are text, and children the places in `children`.
function ruled([weight, left, english, german, conditions]) {
  const children = [], places = {};
  const first = english.split(/[\s()]+/).flatMap(token => {
    const child = token.match(/^(.*\])(\d)[*^]*$/), own = token.match(/^(.+)=\d+$/);
    if (child) places[child[2]] = children.push(atomOf(child[1])) - 1;
    return child ? [places[child[2]]] : own ? [own[1]] : []; // what is neither is a label of the tree
  });
  const second = german.split(" ").map(item => places[item] ?? item.replace(/=\d+$/, ""));
  return { weight: +weight, left: atomOf(left), children, sides: [first, second],
    conditions: conditions.split(" ").filter(Boolean).map(atomOf) };
}

function written(words) { // as a sentence
  const text = words.join(" ").replace(/ ([.,])/g, "$1");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
