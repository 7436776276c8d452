// The published writing model: it fetches one part after the other, and goes on with any prompt. What it is asked and
// what it tells stand in writing.js.

import { BytePairs } from "./bytepairs.js";
import { d_model, Decoder, MOST, N_LAYERS } from "./decoder.js";
import { softmax } from "./layers.js";

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
    best.push(id);
    best.sort((one, other) => odds[other] - odds[one]).splice(n);
  }
  return best;
}

export class Writer {
  // `about` is what mha_course.pages.writing says; the rest as of a `Memory`.
  constructor({ about, wasm }, came, fetch) {
    this.decoder = new Decoder({ about, wasm }, came, fetch);
    this.parts = Object.keys(about.parts).slice(1); // from the first layer on
    this.shards = this.parts.slice(N_LAYERS + 1);
    Object.assign(this, { ids: [], start: 0, weights: [] });
  }

  async *answer({ prompt, cuts = [], write = 0, temperature = 0, seed = 0, survey = null }) {
    const { decoder, parts } = this;
    this.pairs ??= new BytePairs(decoder.about.first, await decoder.part("merges"));
    const ids = this.pairs.encode(prompt), own = ids.map((id) => decoder.word(id)[0]);
    if (!ids.length) throw new Error("Type a beginning: there is no word in the field.");
    if (ids.length > LONGEST) throw new Error(`The text has ${ids.length} tokens; at most ${LONGEST} are taken.`);
    yield { kind: "words", words: ids.map((id) => this.pairs.text(id)) };
    // Ribbons are seen twice as soon where what they need has the network to itself.
    await Promise.all([...own, parts[0]].map((name) => decoder.part(name)));
    yield* this.read(ids);
    for (let i = N_LAYERS; i < parts.length; i++) await decoder.first(parts.slice(i));
    this.before ??= softmax(this.head(this.states[N_LAYERS]));
    const { before } = this, scores = this.scores(cuts), odds = softmax(scores.slice());
    const listed = new Set([...largest(odds, LIKELIEST), ...largest(before, LIKELIEST)]);
    const words = [...listed].map((id) => ({ word: this.pairs.text(id), p: odds[id], was: before[id] }));
    yield { kind: "next", words };
    yield* this.write(scores, cuts, write, temperature, seed);
    if (survey !== null) yield* this.survey(survey);
    yield { kind: "done" };
  }

  // What enters the first layer, (T, d_model).
  embed(ids) {
    const { decoder } = this, x = new Float32Array(ids.length * d_model);
    ids.forEach((id, t) => {
      const [part, i] = decoder.word(id), { raw, halves } = decoder.places.get(part), at = i * d_model;
      const q = new Int8Array(decoder.buffer, raw + at, d_model), d = decoder.floats(halves + at / 8, d_model / 32);
      for (let c = 0; c < d_model; c++) x[t * d_model + c] = q[c] * d[c >> 5];
    });
    return x;
  }

  // Brings a prompt into the cache, layer by layer as they come; what it has in common with the last one is there.
  async *read(ids) {
    if (`${ids}` !== `${this.ids}`) this.begin(ids);
    for (const l of LAYERS) {
      if (l === this.weights.length) {
        await this.decoder.first(this.parts.slice(l));
        const { x, weights } = this.decoder.layer(this.x, this.start, l);
        this.x = x;
        this.states.push(x.slice(-d_model));
        this.weights.push(weights);
      }
      yield { kind: "ribbons", layer: l, weights: this.weights[l] };
    }
  }

  // Of the last prompt those rows stay that are in all layers' caches; its last one may be cut, and is made anew.
  begin(ids) {
    const kept = this.ids.slice(0, this.weights.length < N_LAYERS ? this.start : -1);
    let start = 0;
    while (start < ids.length - 1 && ids[start] === kept[start]) start++;
    const x = this.embed(ids.slice(start)); // enters the next layer; `states`: what its last row brought into each
    Object.assign(this, { ids, start, x, states: [x.slice(-d_model)], weights: [], cuts: [], before: null });
  }

  // How every token scores as the next, with these cuts: only the last row is made anew, from the first layer on whose
  // cuts are others than they were.
  scores(cuts) {
    const own = (some, l) => `${some.filter(([at]) => at === l)}`;
    const first = LAYERS.find((l) => own(cuts, l) !== own(this.cuts, l)) ?? N_LAYERS;
    for (const l of LAYERS.slice(first)) {
      this.states[l + 1] = this.decoder.layer(this.states[l], this.ids.length - 1, l, cuts).x;
    }
    this.cuts = cuts;
    return this.head(this.states[N_LAYERS]);
  }

  // The scores after a row that left the last layer: its norm times every word.
  head(row) {
    const { decoder, shards } = this, { shard } = decoder.about, scores = new Float32Array(shard * shards.length);
    const x = decoder.norm(row, "last");
    shards.forEach((name, i) => scores.set(decoder.linear(x, d_model, name, 8), i * shard));
    return scores;
  }

  // Token by token, each with the cuts; it ends where the model ends.
  *write(scores, cuts, most, temperature, seed) {
    const draw = random(seed), text = new TextDecoder(); // a sign may have several tokens
    for (let n = 0; n < most; n++) {
      let [id] = largest(scores, 1);
      if (temperature > 0) {
        let left = draw();
        id = Math.max(0, softmax(scores, 1 / temperature).findIndex((p) => (left -= p) < 0));
      }
      if (this.pairs.special(id)) return;
      yield { kind: "written", word: text.decode(Uint8Array.from(this.pairs.bytes(id)), { stream: true }) };
      const row = LAYERS.reduce((x, l) => this.decoder.layer(x, this.ids.length + n, l, cuts).x, this.embed([id]));
      scores = this.head(row);
    }
  }

  // Each ribbon of at least this weight cut alone. From the last layer down: then what enters a layer is never cut.
  *survey(least) {
    const [best] = largest(this.before, 1), T = this.ids.length;
    for (const l of LAYERS.toReversed()) for (const [i, weight] of this.weights[l].entries()) if (weight >= least) {
      const cut = [l, Math.floor(i / T), i % T], odds = softmax(this.scores([cut])), [now] = largest(odds, 1);
      yield { kind: "one", cut, weight, word: this.pairs.text(now), p: odds[best] };
    }
  }
}
