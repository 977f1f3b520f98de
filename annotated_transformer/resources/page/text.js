// Endless English sentences and their German translations, with what makes German German: gender, case, adjective
// endings, the verb second or last, prefixes that split off, and an "it" that is er, sie or es.
"use strict";

const table = text => text.trim().split(/\s*[,\n]\s*/).map(line => line.split(" "));
const NOUNS = table(`
  man Mann m p, father Vater m p, king König m p, woman Frau f p, mother Mutter f p, queen Königin f p,
  dog Hund m a, bird Vogel m a, cat Katze f a, cow Kuh f a, horse Pferd n a, pig Schwein n a,
  hat Hut m t, ball Ball m t, table Tisch m t, letter Brief m t, lamp Lampe f t, cup Tasse f t, flower Blume f t,
  door Tür f t, book Buch n t, picture Bild n t, bed Bett n t, window Fenster n t`);
const ADJECTIVES = table(`old alt pat, big groß pat, small klein pat, beautiful schön pat, tired müd pa, clever klug pa,
  new neu t, red rot t, heavy schwer t, white weiß at`);
// English third person, infinitive; German third person, infinitive, prefix; whom; case
const VERBS = table(`sees see sieht sehen - pat acc, finds find findet finden - pat acc, loves love liebt lieben - pat acc,
  buys buy kauft kaufen - at acc, paints paint malt malen - pat acc, hides hide versteckt verstecken - at acc,
  cleans clean putzt putzen - t acc, opens open macht machen auf t acc, calls call ruft rufen an p acc,
  helps help hilft helfen - pa dat, follows follow folgt folgen - pa dat`);
const REST = table(`sleeps sleep schläft schlafen, waits wait wartet warten, runs run rennt rennen,
  plays play spielt spielen, sings sing singt singen`);
const MODALS = table("must muss, can kann, may darf");
const FRONT = table("today heute, now jetzt, here hier, often oft");
const JOIN = table("because weil, although obwohl, while während, if wenn");
const THE = { nom: { m: "der", f: "die", n: "das" }, acc: { m: "den", f: "die", n: "das" },
  dat: { m: "dem", f: "der", n: "dem" } };
const A = { nom: { m: "", f: "e", n: "" }, acc: { m: "en", f: "e", n: "" }, dat: { m: "em", f: "er", n: "em" } };
const MIXED = { nom: { m: "er", f: "e", n: "es" }, acc: { m: "en", f: "e", n: "es" } };
const PRONOUN = { nom: { m: "er", f: "sie", n: "es" }, acc: { m: "ihn", f: "sie", n: "es" },
  dat: { m: "ihm", f: "ihr", n: "ihm" } };
const DETERMINERS = table("the, a, a, my, this");

function sentence(random, level = 3) { // level 1: one clause; 2: two clauses, short; 3: all
  const of = list => list[Math.floor(random() * list.length)], chance = p => random() < p;
  const used = new Set();
  const noun = kinds => { let n; do n = of(NOUNS); while (!kinds.includes(n[3]) || used.has(n)); used.add(n); return n; };
  const adjective = kind => { let a; do a = of(ADJECTIVES); while (!a[2].includes(kind) || used.has(a)); used.add(a); return a; };
  function phrase([en, de, g, kind], kase) { // [English words, German words]
    const det = of(DETERMINERS)[0], strong = { the: 0, this: 0 }[det] === undefined;
    const german = det === "the" ? THE[kase][g] : det === "this" ? "dies" + ({ nom: { m: "er", n: "es", f: "e" },
      acc: { m: "en", n: "es", f: "e" }, dat: A.dat }[kase][g]) : (det === "a" ? "ein" : "mein") + A[kase][g];
    if (!chance(0.4)) return [[det, en], [german, de]];
    const a = adjective(kind), end = kase === "dat" ? "en" : strong ? MIXED[kase][g]
      : kase === "acc" && g === "m" ? "en" : "e";
    return [[det === "a" && /^[aeio]/.test(a[0]) ? "an" : det, a[0], en], [german, a[1] + end, de]];
  }
  const pronoun = ([, , g, kind], kase) => [[kind !== "p" ? "it" : kase === "nom" ? { m: "he", f: "she" }[g]
    : { m: "him", f: "her" }[g]], [PRONOUN[kase][g]]];
  // a verb phrase's parts, put in the order that the clause asks for: main, inv(erted) or last
  function clause(order, subject, verb, object, modal) {
    const [en3, en0, de3, de0, prefix = "-"] = verb, p = prefix === "-" ? "" : prefix;
    const finite = modal ? modal[1] : (order === "last" ? p : "") + de3, end = modal ? [p + de0] : p && order !== "last" ? [p] : [];
    const english = [...subject[0], ...(modal ? [modal[0], en0] : [en3]), ...object[0]];
    const german = order === "main" ? [...subject[1], finite, ...object[1], ...end]
      : order === "inv" ? [finite, ...subject[1], ...object[1], ...end] : [...subject[1], ...object[1], ...end, finite];
    return [english, german];
  }
  const modal = () => chance(0.2) ? of(MODALS) : null, none = [[], []];
  const is = kind => { const a = adjective(kind); return [["is", "be", "ist", "sein"], [[a[0]], [a[1] === "müd" ? "müde" : a[1]]]]; };
  function first(order) { // a clause, and what a pronoun may take up
    const what = random();
    if (what < 0.6) {
      const s = noun(chance(0.8) ? "p" : "a"), v = of(VERBS.filter(v => s[3] === "p" || /see|find|love|help|follow/.test(v[1])));
      const fits = [...v[5]].filter(k => s[3] === "p" || k !== "a").join("") || "p", o = noun(fits);
      const both = s[3] === o[3] || (s[3] !== "p" && o[3] !== "p");
      return [clause(order, phrase(s, "nom"), v, phrase(o, v[6]), modal()), both ? [] : [s, o]];
    }
    const s = noun(what < 0.8 ? "pa" : "pat");
    if (what < 0.8) return [clause(order, phrase(s, "nom"), of(REST), none, modal()), [s]];
    const [v, a] = is(s[3]);
    return [clause(order, phrase(s, "nom"), v, a, null), [s]];
  }
  function second(order, topic) { // a clause with a pronoun
    const [, , , kind] = topic;
    if (order !== "inv" && chance(0.4)) {
      const v = of(VERBS.filter(v => v[5].includes(kind)));
      const s = noun("p");
      return clause(order, phrase(s, "nom"), v, pronoun(topic, v[6]), modal());
    }
    if (kind === "t" || chance(0.5)) { const [v, a] = is(kind); return clause(order, pronoun(topic, "nom"), v, a, null); }
    return clause(order, pronoun(topic, "nom"), of(REST), none, modal());
  }
  const join = (a, b) => [[...a[0], ...b[0]], [...a[1], ...b[1]]], word = (en, de) => [[en], [de]];
  let text;
  const what = random();
  if (level === 1 || what < 0.35) {
    const front = chance(0.5) ? of(FRONT) : null;
    text = front ? join(word(...front), first("inv")[0]) : first("main")[0];
  } else {
    const early = what > 0.85 && level > 2;
    let a, topics;
    const joining = what < 0.6 ? ["but", "aber"] : of(JOIN);
    do { used.clear(); [a, topics] = first(early ? "last" : "main"); } while (!topics.length);
    const b = second(early ? "inv" : joining[0] === "but" ? "main" : "last", of(topics));
    text = early ? join(join(word(...joining), a), join(word(",", ","), b))
      : join(a, join(join([joining[0] === "but" ? [","] : [], [","]], word(...joining)), b));
  }
  return [[...text[0], "."], [...text[1], "."]];
}

// The text of the playground: its words, and sentences without end. `files`: the grammar's files, name -> content.
class Language {
  constructor(files) {
    const rng = randoms(99), words = new Set();
    for (let i = 0; i < 20000; i++) for (const side of sentence(rng)) for (const word of side) words.add(word);
    this.list = ["<pad>", "<unk>", "<s>", "</s>", ...[...words].sort()]; // id -> word; padded to a multiple of 4
    while (this.list.length % 4) this.list.push("");
    this.ids = new Map(this.list.map((word, i) => [word, i]));
  }
  get size() { return this.list.length; }
  sentence(random) { return sentence(random); } // [English words, German words]
  encode([english, german]) { // [source ids with END, START + target ids + END]
    const id = word => this.ids.get(word) ?? UNKNOWN;
    return [[...english.map(id), END], [START, ...german.map(id), END]];
  }
  words(ids) { return ids.map(id => this.list[id]); }
}
function written(words) { // as a sentence
  const text = words.join(" ").replace(/ ([.,])/g, "$1");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
