// From text to ids and back, as annotated_transformer.corpus.vocabulary does it.
"use strict";
const PAD = 0, UNKNOWN = 1, START = 2, END = 3, WORD_START = "\u2581", UNKNOWN_MARK = "\u2047";

// Python's white space: U+001C to U+001F and U+0085 belong to it, U+FEFF does not.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACES = new RegExp(`[\u2581${SPACE}]+`), ENDS = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g"),
  UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });
const spelled = text => text.replaceAll(WORD_START, " ").replace(ENDS, "");
const NORMALISERS = { // the run's `normaliser`
  none: text => text,
  nfc: text => text.normalize("NFC").replace(/[\u00ad\u200b\u2060\ufeff]/g, ""),
};

class Vocabulary {
  constructor(normaliser) {
    this.normalize = NORMALISERS[normaliser || "none"];
    if (!this.normalize) throw new Error(`the normaliser "${normaliser}" is not known here`);
  }
  words(text) {
    return this.normalize(text).split(SPACES).filter(Boolean);
  }
  decode(ids) {
    const kept = ids.filter(id => id !== PAD && id !== START && id !== END);
    return spelled(kept.map(id => id === UNKNOWN ? this.unknown : this.piece(id)).join(""));
  }
}

// SentencePiece's file is a protocol buffer: field 1, repeated, is a piece with its text (1), score (2) and type (3).
function* fields(view, at, end) {
  const varint = () => {
    for (let value = 0, unit = 1; ; unit *= 128) {
      const byte = view.getUint8(at++);
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  while (at < end) {
    const key = varint(), wire = key & 7;
    const size = wire === 2 ? varint() : wire === 1 ? 8 : wire === 5 ? 4 : 0;
    if (size || wire === 2) { yield { field: key >> 3, from: at, to: at + size }; at += size; }
    else yield { field: key >> 3, value: varint() };
  }
}

class BytePairs extends Vocabulary {
  constructor(buffer, normaliser) {
    super(normaliser);
    const NORMAL = 1, WHOLE = 4, BYTE = 6, view = new DataView(buffer);
    this.unknown = UNKNOWN_MARK;
    this.pieces = [];
    this.rank = new Map(); // of a piece that may come of a merge: its score; later pieces score lower
    this.ids = new Map();
    this.bytes = new Map();
    this.whole = [];
    for (const { field, from, to } of fields(view, 0, buffer.byteLength)) {
      if (field !== 1) continue;
      let piece = "", score = 0, type = NORMAL;
      for (const part of fields(view, from, to)) {
        if (part.field === 1) piece = UTF8.decode(new Uint8Array(buffer, part.from, part.to - part.from));
        else if (part.field === 2) score = view.getFloat32(part.from, true);
        else if (part.field === 3) type = part.value;
      }
      const id = this.pieces.push(piece) - 1;
      if (type === NORMAL || type === WHOLE) this.ids.set(piece, id);
      if (type === NORMAL) this.rank.set(piece, score);
      if (type === WHOLE) this.whole.push(piece);
      if (type === BYTE) this.bytes.set(parseInt(piece.slice(1, -1)), id);
    }
    this.whole.sort((a, b) => b.length - a.length);
    this.byteOf = new Map([...this.bytes].map(([byte, id]) => [id, byte]));
  }
  get size() { return this.pieces.length; }
  piece(id) { return this.pieces[id]; }

  encode(text) {
    const words = this.words(text);
    return words.length ? this.merged(WORD_START + words.join(WORD_START)) : [];
  }
  merged(text) { // the best pair is merged, the first of equals, until no pair makes a piece
    const parts = [];
    for (let i = 0; i < text.length; i += parts.at(-1).length) {
      parts.push(this.whole.find(piece => text.startsWith(piece, i)) || String.fromCodePoint(text.codePointAt(i)));
    }
    const fixed = new Set(this.whole);
    for (;;) {
      let best = -Infinity, at = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        if (fixed.size && (fixed.has(parts[i]) || fixed.has(parts[i + 1]))) continue;
        const score = this.rank.get(parts[i] + parts[i + 1]);
        if (score > best) [best, at] = [score, i];
      }
      if (at < 0) return this.numbered(parts);
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
  }
  numbered(parts) {
    const ids = [];
    for (const part of parts) {
      if (this.ids.has(part)) ids.push(this.ids.get(part));
      else if (this.bytes.size) ids.push(...Array.from(new TextEncoder().encode(part), byte => this.bytes.get(byte)));
      else if (ids.at(-1) !== UNKNOWN) ids.push(UNKNOWN); // a run of unknown characters is one token
    }
    return ids;
  }
  decode(ids) { // several bytes may make one character
    if (!ids.some(id => this.byteOf.has(id))) return super.decode(ids);
    const bytes = [];
    for (const id of ids) {
      if (id === PAD || id === START || id === END) continue;
      if (this.byteOf.has(id)) bytes.push(this.byteOf.get(id));
      else bytes.push(...new TextEncoder().encode(id === UNKNOWN ? ` ${UNKNOWN_MARK} ` : this.pieces[id]));
    }
    return spelled(UTF8.decode(new Uint8Array(bytes)));
  }
}

// Hugging Face's file: from the left of each word the longest piece that fits, "##" before those that continue it.
class WordPieces extends Vocabulary {
  constructor(buffer, normaliser) {
    super(normaliser);
    const { model, normalizer } = JSON.parse(UTF8.decode(buffer)), normalize = this.normalize;
    if (normalizer?.type === "Lowercase") this.normalize = text => normalize(text).toLowerCase();
    this.unknown = WORD_START + UNKNOWN_MARK;
    this.ids = new Map(Object.entries(model.vocab));
    this.pieces = [];
    for (const [piece, id] of this.ids) this.pieces[id] = piece;
    this.most = model.max_input_chars_per_word;
  }
  get size() { return this.pieces.length; }
  piece(id) { return this.pieces[id].replace(/^##/, ""); }

  encode(text) {
    const ids = [];
    for (const word of this.words(text)) {
      // a punctuation mark is a word by itself; "_" and "-" are, and so is all ASCII that is no letter, digit or space
      for (const part of (WORD_START + word)
        .match(/[!-/:-@[-`{-~\p{P}]|[^!-/:-@[-`{-~\p{P}]+/gu)) ids.push(...this.cut(part));
    }
    return ids;
  }
  cut(part) {
    const ids = [], letters = Array.from(part);
    if (letters.length > this.most) return [UNKNOWN];
    for (let start = 0, end; start < letters.length; start = end) {
      for (end = letters.length; end > start; end--) {
        const id = this.ids.get((start ? "##" : "") + letters.slice(start, end).join(""));
        if (id !== undefined) { ids.push(id); break; }
      }
      if (end === start) return [UNKNOWN];
    }
    return ids;
  }
}

function readVocabulary(buffer, name, normaliser) {
  return new (name.endsWith(".json") ? WordPieces : BytePairs)(buffer, normaliser);
}
