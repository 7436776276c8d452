// Byte pairs, as the published model has them: each digit alone, then GPT-2's words, then the earliest merge first.

const DIGITS = /\p{N}|\P{N}+/gu;
const SPACES = String.raw`\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+`;
const SIGNS = String.raw`[^\p{White_Space}\p{L}\p{N}]+`;
const WORDS = RegExp(String.raw`'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?${SIGNS}|${SPACES}`, "gu");

export class BytePairs {
  // `first`: the tokens before any merge, each a byte or the name of a special one. `merges`: bytes of uint16, pairs of
  // ids; each pair makes the next token.
  constructor(first, merges) {
    Object.assign(this, { first, pairs: new Uint16Array(merges.slice().buffer), merged: new Map() });
    const names = first.filter((token) => typeof token === "string").map((name) => name.replaceAll("|", "\\|"));
    this.specials = new RegExp(`(${names.join("|")})`, "u");
    this.ids = new Map(first.map((byte, id) => [byte, id]));
    for (let k = 0; k < this.pairs.length; k += 2) {
      this.merged.set(this.pairs[k] * 65536 + this.pairs[k + 1], first.length + k / 2);
    }
  }

  encode(text) {
    return text.split(this.specials).flatMap((part, i) => {
      if (i % 2) return [this.ids.get(part)];
      return (part.match(DIGITS) ?? []).flatMap((piece) => piece.match(WORDS) ?? []).flatMap((word) => this.word(word));
    });
  }

  word(word) {
    const ids = [...new TextEncoder().encode(word)].flatMap((byte) => this.ids.get(byte) ?? []); // some bytes have none
    const made = (i) => this.merged.get(ids[i] * 65536 + ids[i + 1]) ?? Infinity;
    for (;;) {
      let least = Infinity;
      for (let i = 0; i + 1 < ids.length; i++) least = Math.min(least, made(i));
      if (least === Infinity) return ids;
      for (let i = 0; i + 1 < ids.length; i++) if (made(i) === least) ids.splice(i, 2, least);
    }
  }

  bytes(id) {
    const k = 2 * (id - this.first.length);
    return k < 0 ? [this.first[id]] : [...this.bytes(this.pairs[k]), ...this.bytes(this.pairs[k + 1])];
  }

  special(id) { return typeof this.first[id] === "string"; }

  // A token as it is read; "\ufffd" for a part of a sign.
  text(id) {
    if (this.special(id)) return this.first[id];
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(this.bytes(id)));
  }
}
