// The published model in a page: it is fetched when somebody asks for it, and then takes any sentence.

import { d_model, Encoder, N_LAYERS } from "./encoder.js";
import { bytesOfFile, widen } from "./files.js";
import { Memory } from "./kernel.js";
import { MOST, Tokenizer } from "./tokenizer.js";

const WIDE = 4 * d_model; // the feed-forward's
const fours = (n) => Math.ceil(n / 4) * 4;

export class Model {
  // `about` is what mha_course.pages.published says: the folder, its parts with their tensors, how many words a
  // shard has.
  constructor(about, wasm) {
    Object.assign(this, { about, wasm, memory: new Memory(about.parts), shards: new Map(), ready: false });
    this.missing = new Set(["vocabulary", ...Object.keys(about.parts)]);
    this.total = this.missing.size;
    [this.x, this.y] = [4 * MOST * WIDE, 4 * MOST * WIDE].map((bytes) => this.memory.take(bytes));
  }

  file(name) { return bytesOfFile(this.about.folder, name); }

  // Fetches what is missing but words; `progress` hears which share is there.
  async open(progress = () => {}) {
    if (!this.memory.kernel) this.memory.begin(this.wasm);
    const all = await Promise.allSettled([...this.missing].map(async (name) => {
      const bytes = await this.file(name);
      if (name === "vocabulary") this.tokenizer = new Tokenizer(new TextDecoder().decode(bytes).split("\n"));
      else this.memory.keep(name, bytes);
      this.missing.delete(name);
      progress(1 - this.missing.size / this.total);
    }));
    // only now: what is still on its way shall not be asked for twice
    for (const { reason } of all) if (reason) throw reason;
    this.encoder = new Encoder((x, name) => this.linear(x, name), (name) => this.tensor(name));
    this.ready = true;
  }

  tensor(name) {
    const { halves, length } = this.memory.places.get(name);
    return this.memory.floats(halves, length);
  }

  // x (T, m) through a matrix of the model and its bias, (T, n).
  linear(x, name) {
    const { memory } = this, weight = memory.places.get(`${name}.weight`), bias = memory.places.get(`${name}.bias`);
    const n = bias.length, m = weight.length / n, T = x.length / m;
    memory.floats(this.x, x.length).set(x);
    memory.kernel.linear(this.x, fours(T), m, weight.halves, n, bias.halves, this.y);
    return memory.floats(this.y, T * n).slice();
  }

  // The shards of these ids that are not there yet, or all of them: then no sentence needs the network.
  words(ids = Array.from({ length: this.tokenizer.pieces.length }, (_, id) => id), progress = () => {}) {
    const shards = [...new Set(ids.map((id) => Math.floor(id / this.about.shard)))]
      .filter((shard) => !this.shards.has(shard));
    let done = 0;
    return Promise.all(shards.map(async (shard) => {
      this.shards.set(shard, widen(await this.file(`words-${shard}`)));
      progress(++done / shards.length);
    }));
  }

  // What enters the first layer, (T, d_model). Its words are there.
  embed(ids) {
    const sums = new Float32Array(ids.length * d_model),
      [positions, segments] = ["positions", "segments"].map((name) => this.tensor(name));
    ids.forEach((id, t) => {
      const words = this.shards.get(Math.floor(id / this.about.shard)), from = (id % this.about.shard) * d_model;
      for (let c = 0; c < d_model; c++) sums[t * d_model + c] =
        words[from + c] + positions[t * d_model + c] + segments[c];
    });
    return this.encoder.embed(sums);
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
    await this.words(ids);
    return new Sentence(this, text, ids);
  }
}

// How far each row of y lies from that of x, as a share of the latter's length: (T).
function moves(x, y) {
  return Float32Array.from({ length: y.length / d_model }, (_, t) => {
    const from = (t * d_model) % x.length;
    let far = 0, long = 0;
    for (let c = 0; c < d_model; c++) {
      far += (x[from + c] - y[t * d_model + c]) ** 2;
      long += x[from + c] ** 2;
    }
    return Math.sqrt(far / long);
  });
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
    return moves(this.last, this.model.encoder.run(this.all.states[first], first, cuts).states.at(-1));
  }

  // How far the last vector of `row` moves if its weight to each word, alone, is cut in this head: (T). The page stays
  // quick meanwhile; null if other effects are asked for before these are there.
  async effects(layer, head, row) {
    const key = this.asked = `${layer} ${head} ${row}`;
    if (!this.effectsOf.has(key)) {
      const cut = await this.model.encoder.eachCut(this.all.states, layer, head, row,
        () => pause().then(() => this.asked === key));
      if (!cut) return null;
      this.effectsOf.set(key, moves(this.last.subarray(row * d_model, (row + 1) * d_model), cut));
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
