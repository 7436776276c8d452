// WordPiece, as the published model's own tokenizer has it: lower case, no accents, the longest pieces first.

const SPECIAL = /(\[(?:PAD|UNK|CLS|SEP|MASK)\])/; // written in a text, they are themselves
const IDEOGRAPH = RegExp("[\\u4e00-\\u9fff\\u3400-\\u4dbf\\uf900-\\ufaff\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b73f}"
  + "\\u{2b740}-\\u{2b81f}\\u{2b820}-\\u{2ceaf}\\u{2f800}-\\u{2fa1f}]", "gu");
const OTHER = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\ufffd]/gu; // no signs that are seen
const PUNCTUATION = /[\p{P}$+<=>^`|~]/gu; // each mark is a word of its own

// Sign by sign: of a whole word, a sigma at its end would become another letter.
const lower = (text) => Array.from(text, (sign) => sign.toLowerCase()).join("");
const words = (text) =>
  lower(text.replace(OTHER, "").replace(IDEOGRAPH, " $& ").normalize("NFD").replace(/\p{Mn}/gu, ""))
  .replace(PUNCTUATION, " $& ").split(/\s+/).filter(Boolean);

export class Tokenizer {
  // `pieces`: the vocabulary; a piece's place is its id.
  constructor(pieces) {
    this.pieces = pieces;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
  }

  // The ids of a text, those of [CLS] and [SEP] around it.
  encode(text) {
    const inside = text.split(SPECIAL).flatMap((part, i) =>
      (i % 2 ? [part] : words(part).flatMap((word) => this.split(word))));
    return ["[CLS]", ...inside, "[SEP]"].map((piece) => this.ids.get(piece));
  }

  // The pieces of a word: always the longest that begins what is left.
  split(word) {
    const letters = [...word], found = [];
    for (let start = 0, end; start < letters.length; start = end) {
      const piece = () => (start ? "##" : "") + letters.slice(start, end).join("");
      end = letters.length;
      while (end > start && !this.ids.has(piece())) end--;
      if (end === start || letters.length > 100) return ["[UNK]"];
      found.push(piece());
    }
    return found;
  }
}
