// The published writing model, in a worker: it fetches one part after the other, and goes on with any prompt.
// What it is asked and what it tells stand in writing.js.

import { BytePairs } from "./bytepairs.js";
import { d_model, Decoder, MOST, N_LAYERS } from "./decoder.js";
import { bytesOfFile } from "./files.js";
import { Memory } from "./kernel.js";
import { softmax } from "./rows.js";

const LONGEST = MOST - 32, LIKELIEST = 10; // tokens of a prompt
const LAYERS = Array.from({ length: N_LAYERS }, (_, l) => l);

// Numbers from 0 to 1 that a seed decides (mulberry32).
const random = (seed) => () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let t = Math.imul(seed ^ (seed >>> 15), seed | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
};

// The ids of the n largest, the largest first.
function largest(odds, n) {
  const best = [];
  for (let id = 0; id < odds.length; id++) if (best.length < n || odds[id] > odds[best.at(-1)]) {
    const place = best.findIndex((other) => odds[id] > odds[other]);
    best.splice(place < 0 ? best.length : place, 0, id);
    best.length = Math.min(best.length, n);
  }
  return best;
}

export class Writer {
  // `about` is what mha_course.pages.writing says; `fetch` and `came` as of a `Memory`.
  constructor({ about, wasm }, fetch, came) {
    Object.assign(this, { about, ids: [], cuts: [], states: [] }); // the last three of the prompt that is in the cache
    this.shards = Object.keys(about.parts).filter((name) => name.startsWith("words-"));
    this.memory = new Memory(about, fetch, (_, merges) => { this.pairs = new BytePairs(about.first, merges); }, came);
    this.decoder = new Decoder(this.memory);
    this.row = this.memory.take(4 * d_model);
    this.scored = this.memory.take(4 * about.shard);
    this.memory.begin(wasm);
    if (!this.memory.simd) throw new Error("This browser is too old for the model: it has no WebAssembly SIMD.");
  }

  async *answer({ prompt, cuts = [], write = 0, temperature = 0, seed = 0, survey = null }) {
    const { memory } = this;
    await memory.part("merges");
    const ids = this.pairs.encode(prompt), shards = [...new Set(ids.map((id) => this.shardOf(id)))];
    if (!ids.length) throw new Error("Type a beginning: there is no word in the field.");
    if (ids.length > LONGEST) throw new Error(`The text has ${ids.length} tokens; at most ${LONGEST} are taken.`);
    yield { kind: "words", words: ids.map((id) => this.pairs.text(id)) };
    const layers = LAYERS.map((l) => `layer-${l}`), rest = ["last", ...this.shards];
    memory.ahead([...shards, ...layers, ...rest]);
    for (const name of shards) await memory.part(name);
    yield* this.read(ids);
    for (const name of rest) await memory.part(name);
    const before = softmax(this.scores([])), scores = this.scores(cuts), odds = softmax(scores.slice());
    const listed = new Set([...largest(odds, LIKELIEST), ...largest(before, LIKELIEST)]);
    const words = [...listed].map((id) => ({ word: this.pairs.text(id), p: odds[id], was: before[id] }));
    yield { kind: "next", words };
    yield* this.write(scores, cuts, write, temperature, seed);
    if (survey !== null) yield* this.survey(before, survey);
    yield { kind: "done" };
  }

  shardOf(id) { return `words-${Math.floor(id / this.about.shard)}`; }

  // What enters the first layer, (T, d_model).
  embed(ids) {
    const x = new Float32Array(ids.length * d_model), { shard } = this.about;
    ids.forEach((id, t) => {
      const { raw, halves } = this.memory.places.get(this.shardOf(id)), at = (id % shard) * d_model;
      const q = new Int8Array(this.memory.buffer, raw + at, d_model);
      const d = this.memory.floats(halves + at / 8, d_model / 32);
      for (let c = 0; c < d_model; c++) x[t * d_model + c] = q[c] * d[c >> 5];
    });
    return x;
  }

  // Brings a prompt into the cache, layer by layer as they come; what it has in common with the last one is there.
  async *read(ids) {
    if (ids.join() !== this.ids.join() || this.states.length <= N_LAYERS) {
      const kept = this.ids.slice(0, this.cuts.length ? -1 : undefined); // a last row that is cut is made anew
      let start = 0;
      while (start < ids.length - 1 && ids[start] === kept[start]) start++;
      Object.assign(this, { ids: this.ids.slice(0, start), cuts: [], states: [], weights: [] });
      for (let l = 0, x = this.embed(ids.slice(start)); l <= N_LAYERS; l++) {
        this.states.push(x.slice(-d_model)); // what the last token brings into layer l
        if (l === N_LAYERS) break;
        await this.memory.part(`layer-${l}`);
        const made = this.decoder.layer(x, start, l);
        x = made.x;
        this.weights.push(made.weights);
        yield { kind: "ribbons", layer: l, weights: made.weights };
      }
      this.ids = ids;
    } else for (const l of LAYERS) yield { kind: "ribbons", layer: l, weights: this.weights[l] };
  }

  // How every token scores as the next, with these cuts: only the last row is made anew, from the first layer on whose
  // cuts are others than they were.
  scores(cuts) {
    const only = (some, others) => some.filter((one) => !others.some((other) => `${one}` === `${other}`));
    const first = Math.min(...[...only(cuts, this.cuts), ...only(this.cuts, cuts)].map(([l]) => l), N_LAYERS);
    for (const l of LAYERS.slice(first)) {
      this.states[l + 1] = this.decoder.layer(this.states[l], this.ids.length - 1, l, cuts).x;
    }
    this.cuts = cuts;
    return this.head(this.states[N_LAYERS]);
  }

  // The scores after a row that left the last layer: its norm times every word.
  head(row) {
    const { memory, about: { shard } } = this, { words } = memory.kernel;
    const scores = new Float32Array(shard * this.shards.length);
    memory.floats(this.row, d_model).set(this.decoder.norm(row, "last"));
    this.shards.forEach((name, i) => {
      const { raw, halves } = memory.places.get(name);
      words(this.row, d_model, raw, halves, shard, this.scored);
      scores.set(memory.floats(this.scored, shard), i * shard);
    });
    return scores;
  }

  // Token by token, each with the cuts; it ends where the model ends.
  *write(scores, cuts, most, temperature, seed) {
    const draw = random(seed), text = new TextDecoder(); // a sign may have several tokens
    for (let n = 0; n < most; n++) {
      let [id] = largest(scores, 1);
      if (temperature > 0) {
        const drawn = softmax(scores.map((score) => score / temperature));
        let left = draw();
        id = Math.max(0, drawn.findIndex((p) => (left -= p) < 0));
      }
      if (this.pairs.special(id)) return;
      const word = text.decode(Uint8Array.from(this.pairs.bytes(id)), { stream: true });
      yield { kind: "written", word };
      const row = LAYERS.reduce((x, l) => this.decoder.layer(x, this.ids.length + n, l, cuts).x, this.embed([id]));
      scores = this.head(row);
    }
  }

  // Each ribbon of at least this weight cut alone. From the last layer down: then what enters a layer is never cut.
  *survey(before, least) {
    const [best] = largest(before, 1), T = this.ids.length;
    for (const l of LAYERS.toReversed()) for (const [i, weight] of this.weights[l].entries()) if (weight >= least) {
      const cut = [l, Math.floor(i / T), i % T], odds = softmax(this.scores([cut])), [now] = largest(odds, 1);
      yield { kind: "one", cut, weight, word: this.pairs.text(now), p: odds[best] };
    }
  }
}

// In the worker: `{ about, wasm, disk }` comes first, then requests, of which the last counts, and, on a disk, parts.
const asked = new Map(), turns = new MessageChannel();
let told, writer, latest = 0, earlier = Promise.resolve();

const tell = (message) => postMessage({ turn: latest, told: message });
const turn = () => new Promise((go) => { // so that a newer request is heard
  turns.port1.onmessage = go;
  turns.port2.postMessage(null);
});
const fromPage = (name) => new Promise((take, fail) => {
  asked.set(name, { take, fail });
  postMessage({ part: name });
});

async function serve(request, own) {
  try {
    const itself = (name) => bytesOfFile(told.about.folder, name);
    const came = (name, have, of) => tell({ kind: "progress", what: name.replace("-", " "), have, of });
    writer ??= new Writer(told, told.disk ? fromPage : itself, came);
    if (own === latest) for await (const message of writer.answer(request)) {
      if (own !== latest) return;
      tell(message);
      await turn();
    }
  } catch (error) {
    if (own === latest) tell({ kind: "error", text: error.message, again: error.again ?? false });
  }
}

addEventListener("message", ({ data }) => {
  if (data.about) told = data;
  else if (data.request) {
    latest = data.turn;
    earlier = earlier.then(() => serve(data.request, data.turn));
  } else if (data.bytes) asked.get(data.part).take(data.bytes);
  else asked.get(data.part).fail(Object.assign(new Error(data.lost), { again: true }));
});
