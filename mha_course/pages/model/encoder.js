// The six layers of all-MiniLM-L6-v2 on one sentence, with weights cut: what mha_lesson.pretrained computes.

import { add, Heads, norm } from "./rows.js";

export const d_model = 384, N_LAYERS = 6;
const h = 12, EPS = 1e-12, WIDE = 4 * d_model, STEP = 4 * 3 * d_model; // the feed-forward's; bytes from key to key

// x · Φ(x); the error function after Abramowitz and Stegun, 7.1.26, right to 1.5e-7.
function gelu(x) {
  return x.map((v) => {
    const z = Math.abs(v) * Math.SQRT1_2, t = 1 / (1 + 0.3275911 * z);
    const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
      * Math.exp(-z * z);
    return v * (v < 0 ? tail / 2 : 1 - tail / 2);
  });
}

export class Encoder {
  // `memory` has the weights; what is computed lies behind them. `most`: tokens of the longest text.
  constructor(memory, most) {
    const rows = 4 * most * WIDE, heads = new Heads(memory, { h, h_kv: h, d_k: d_model / h, most });
    Object.assign(this, { memory, heads, x: memory.take(rows), y: memory.take(rows) });
  }

  norm(x, name) { return norm(x, EPS, this.memory.tensor(`${name}.weight`), this.memory.tensor(`${name}.bias`)); }

  // x (T, m) through a matrix of the model and its bias, (T, n); it stands at `y`, too.
  linear(x, name) {
    const { memory } = this, [weight, bias] = ["weight", "bias"].map((kind) => memory.places.get(`${name}.${kind}`));
    const n = bias.length, m = weight.length / n, T = x.length / m;
    memory.floats(this.x, x.length).set(x);
    memory.kernel.linear(this.x, Math.ceil(T / 4) * 4, m, weight.halves, n, bias.halves, this.y);
    return memory.floats(this.y, T * n).slice();
  }

  // What leaves each layer from `layer` on, where x (T, d_model) enters, and their weights (h, T, T) before a cut.
  // A cut is [layer, head, row, column]; null stands for all.
  run(x, layer = 0, cuts = []) {
    const states = [x], weights = [];
    for (let l = layer; l < N_LAYERS; l++) {
      const seen = this.attend(x, l, cuts.filter(([at]) => at === l));
      const linear = (rows, name) => this.linear(rows, `layers.${l}.${name}`);
      const between = this.norm(add(linear(seen.contexts, "attention.w_o"), x), `layers.${l}.norm_1`);
      x = this.norm(add(linear(gelu(linear(between, "widen")), "narrow"), between), `layers.${l}.norm_2`);
      states.push(x);
      weights.push(seen.weights);
    }
    return { states, weights };
  }

  attend(x, l, cuts) {
    const T = x.length / d_model, contexts = new Float32Array(x.length), weights = new Float32Array(h * T * T);
    this.linear(x, `layers.${l}.attention.w_qkv`);
    const [q, k, v] = [0, 1, 2].map((i) => this.y + 4 * i * d_model);
    for (let r = 0; r < T; r++) {
      const own = cuts.filter(([, , row]) => (row ?? r) === r).map(([, head, , column]) => [head, column]);
      const one = this.heads.row(q + r * STEP, k, v, STEP, T, own);
      contexts.set(one.context, r * d_model);
      for (let i = 0; i < h; i++) weights.set(one.weights.subarray(i * T, (i + 1) * T), (i * T + r) * T);
    }
    return { contexts, weights };
  }
}
