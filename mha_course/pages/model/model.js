// The published model in a page: it is fetched when somebody asks for it, and then takes any sentence.

import { d_model, Encoder, N_LAYERS } from "./encoder.js";
import { bytesOfFile, widen } from "./files.js";
import { Memory } from "./kernel.js";
import { MOST, Tokenizer } from "./tokenizer.js";

export class Model {
  // `about` is what mha_course.pages.published says: the folder, its parts with their tensors, their sizes, how many
  // words a shard has.
  constructor(about, wasm) {
    Object.assign(this, { about, wasm, ready: false });
    this.memory = new Memory(about, (name) => bytesOfFile(about.folder, name), (_, bytes) => {
      this.tokenizer = new Tokenizer(new TextDecoder().decode(bytes).split("\n"));
    });
    this.encoder = new Encoder(this.memory, MOST);
  }

  // Fetches what is missing of these parts, or of all but words; `progress` hears which share is there.
  async open(progress = () => {}, names = Object.keys(this.about.parts).filter((name) => !name.startsWith("words"))) {
    if (!this.memory.kernel) this.memory.begin(this.wasm);
    let done = 0;
    const all = await Promise.allSettled(names.map((name) => this.memory.part(name).then(() =>
      progress(++done / names.length))));
    // only now: what is still on its way shall not be asked for twice
    for (const { reason } of all) if (reason) throw reason;
    this.ready = true;
  }

  // Every word that is not there yet: then no sentence needs the network.
  words(progress) { return this.open(progress, Object.keys(this.about.parts)); }

  // What enters the first layer, (T, d_model). Its words are there.
  embed(ids) {
    const { memory, about: { shard } } = this, sums = new Float32Array(ids.length * d_model);
    const [positions, segments] = ["positions", "segments"].map((name) => memory.tensor(name));
    ids.forEach((id, t) => {
      const { raw } = memory.places.get(nameOf(id, shard)), at = raw + 2 * (id % shard) * d_model;
      const word = widen(new Uint8Array(memory.buffer, at, 2 * d_model));
      for (let c = 0; c < d_model; c++) sums[t * d_model + c] = word[c] + positions[t * d_model + c] + segments[c];
    });
    return this.encoder.norm(sums, "norm");
  }

  // The ids of a sentence of at most so many tokens. An Error says why a text is none.
  idsOf(text, most = MOST) {
    const ids = this.tokenizer.encode(text), unknown = this.tokenizer.ids.get("[UNK]");
    if (ids.length <= 2) throw new Error("Type a sentence: there is no word in the field.");
    if (ids.length > most) throw new Error(`The sentence has ${ids.length} tokens; at most ${most} can be shown.`);
    if (ids.slice(1, -1).every((id) =>
      id === unknown)) throw new Error("The model knows no word of this sentence: it was made for English.");
    return ids;
  }

  async sentence(text, most = MOST) {
    const ids = this.idsOf(text, most);
    await this.open(undefined, ids.map((id) => nameOf(id, this.about.shard)));
    return new Sentence(this, text, ids);
  }
}

const nameOf = (id, shard) => `words-${Math.floor(id / shard)}`; // the part that has a word

// How far a row lies from another, as a share of the latter's length.
function distance(row, from) {
  const squares = (numbers) => numbers.reduce((sum, v) => sum + v ** 2, 0);
  return Math.sqrt(squares(row.map((v, c) => v - from[c])) / squares(from));
}

// A sentence in the model: every head's weights, and what becomes of its words when some are cut.
export class Sentence {
  constructor(model, text, ids) {
    Object.assign(this, { model, text, ids, T: ids.length, effectsOf: new Map() });
    this.tokens = ids.map((id) => model.tokenizer.pieces[id]);
    this.labels = this.tokens.map((token, t) =>
      token.replace(/^##/, "-") + (this.tokens[t + 1]?.startsWith("##") ? "-" : ""));
    this.all = model.encoder.run(model.embed(ids));
    this.last = this.all.states.at(-1);
  }

  // A head's weights, (T, T): a row for each query.
  weights(layer, head) { return this.all.weights[layer].subarray(head * this.T ** 2, (head + 1) * this.T ** 2); }

  // How far each word's last vector moves with these cuts, as a share of its length: (T). Nothing is rescaled.
  moved(cuts) {
    const first = Math.min(...cuts.map(([layer]) => layer), N_LAYERS - 1);
    const now = this.model.encoder.run(this.all.states[first], first, cuts).states.at(-1);
    const row = (rows, t) => rows.subarray(t * d_model, (t + 1) * d_model);
    return Float32Array.from({ length: this.T }, (_, t) => distance(row(now, t), row(this.last, t)));
  }

  // How far the last vector of `row` moves if its weight to each word, alone, is cut in this head: (T). The page stays
  // quick meanwhile; null if other effects are asked for before these are there.
  async effects(layer, head, row) {
    const key = this.asked = `${layer} ${head} ${row}`;
    if (!this.effectsOf.has(key)) {
      const found = new Float32Array(this.T);
      for (let c = 0; c < this.T; c++) {
        found[c] = this.moved([[layer, head, row, c]])[row];
        await pause();
        if (this.asked !== key) return null;
      }
      this.effectsOf.set(key, found);
    }
    return this.effectsOf.get(key);
  }
}

// Lets the page draw and hear its reader, where a frame's time has gone since it last did.
async function pause() {
  if (performance.now() - pause.since < 12) return;
  await new Promise((go) => { setTimeout(go); });
  pause.since = performance.now();
}
pause.since = 0;
