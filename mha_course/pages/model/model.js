// The published model in a page: it is fetched when somebody asks for it, and then takes any sentence.

import { d_model, Encoder, MOST, N_LAYERS } from "./encoder.js";
import { widen } from "./files.js";
import { turn } from "./kernel.js";
import { Tokenizer } from "./tokenizer.js";

export class Model {
  // `about` is what mha_course.pages.published says, `wasm` the bytes of kernel.wasm.
  constructor(about, wasm) {
    Object.assign(this, { told: { about, wasm }, parts: Object.keys(about.parts) });
  }

  // Fetches what is missing of these parts, or of all but words; `progress` hears which share is there. Then there is a
  // tokenizer.
  async open(progress = () => {}, names = this.parts.filter((name) => !name.startsWith("words"))) {
    const encoder = this.encoder ??= new Encoder(this.told);
    let done = 0;
    await Promise.all(names.map((name) => encoder.part(name).then(() => progress(++done / names.length))));
    this.tokenizer ??= new Tokenizer(new TextDecoder().decode(await encoder.part("vocabulary")).split("\n"));
  }

  // What enters the first layer, (T, d_model). Words that are missing are fetched.
  async embed(ids) {
    const { encoder } = this, [positions, segments] = ["positions", "segments"].map((name) => encoder.tensor(name));
    const rows = await Promise.all(ids.map(async (id, t) => {
      const [part, i] = encoder.word(id), bytes = await encoder.part(part);
      const word = widen(bytes.subarray(2 * i * d_model, 2 * (i + 1) * d_model));
      return word.map((value, c) => value + positions[t * d_model + c] + segments[c]);
    }));
    return encoder.norm(Float32Array.from(rows.flatMap((row) => [...row])), "norm");
  }

  // A sentence of at most so many tokens. An Error says why a text is none.
  async sentence(text, most = MOST) {
    const ids = this.tokenizer.encode(text), unknown = this.tokenizer.ids.get("[UNK]");
    if (ids.length <= 2) throw new Error("Type a sentence: there is no word in the field.");
    if (ids.length > most) throw new Error(`The sentence has ${ids.length} tokens; at most ${most} can be shown.`);
    if (ids.slice(1, -1).every((id) =>
      id === unknown)) throw new Error("The model knows no word of this sentence: it was made for English.");
    return new Sentence(this, text, ids, await this.embed(ids));
  }
}

// A sentence in the model: every head's weights, and what becomes of its words when some are cut.
export class Sentence {
  // `x` is what enters the first layer.
  constructor(model, text, ids, x) {
    const tokens = ids.map((id) => model.tokenizer.pieces[id]), splits = (token) => token?.startsWith("##");
    const labels = tokens.map((token, t) => token.replace(/^##/, "-") + (splits(tokens[t + 1]) ? "-" : ""));
    Object.assign(this, { model, text, T: ids.length, labels, all: model.encoder.run(x) });
  }

  // A head's weights, (T, T): a row for each query.
  weights(layer, head) { return this.all.weights[layer].subarray(head * this.T ** 2, (head + 1) * this.T ** 2); }

  // How far each word's last vector moves with these cuts, as a share of its length: (T). Nothing is rescaled.
  moved(cuts) {
    const first = Math.min(...cuts.map(([layer]) => layer), N_LAYERS - 1), { states } = this.all;
    const now = this.model.encoder.run(states[first], first, cuts).states.at(-1), was = states[N_LAYERS];
    return Float32Array.from({ length: this.T }, (_, t) => {
      let [far, long] = [0, 0];
      for (let i = t * d_model; i < (t + 1) * d_model; i++) {
        far += (now[i] - was[i]) ** 2;
        long += was[i] ** 2;
      }
      return Math.sqrt(far / long);
    });
  }

  // How far the last vector of `row` moves if its weight to each word, alone, is cut in this head: (T). The page stays
  // quick meanwhile; null if other effects are asked for before these are there.
  async effects(layer, head, row) {
    const found = new Float32Array(this.T), asked = this.asked = {};
    for (let c = 0; c < this.T; c++) {
      found[c] = this.moved([[layer, head, row, c]])[row];
      await turn();
      if (this.asked !== asked) return null;
    }
    return found;
  }
}
