// The six layers of all-MiniLM-L6-v2 on one sentence, with weights cut: what mha_lesson.pretrained computes.

import { add, norm, Rows } from "./rows.js";

export const d_model = 384, N_LAYERS = 6;
const h = 12, EPS = 1e-12, WIDE = 4 * d_model; // the feed-forward's

// x · Φ(x); the error function after Abramowitz and Stegun, 7.1.26, right to 1.5e-7.
function gelu(x) {
  return x.map((v) => {
    const z = Math.abs(v) * Math.SQRT1_2, t = 1 / (1 + 0.3275911 * z);
    const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
      * Math.exp(-z * z);
    return v * (v < 0 ? tail / 2 : 1 - tail / 2);
  });
}

export class Encoder extends Rows {
  // `memory` has the weights; what is computed lies behind them. `most`: tokens of the longest text.
  constructor(memory, most) {
    super(memory, { h, h_kv: h, d_k: d_model / h, layers: N_LAYERS, most, widest: WIDE });
  }

  norm(x, name) { return norm(x, EPS, this.memory.tensor(`${name}.weight`), this.memory.tensor(`${name}.bias`)); }

  // x (T, m) through a matrix of the model and its bias, (T, n); it stands at `y`, too.
  linear(x, name) {
    const { memory } = this, [weight, bias] = ["weight", "bias"].map((kind) => memory.places.get(`${name}.${kind}`));
    const n = bias.length, m = weight.length / n, T = x.length / m, b = memory.floats(bias.halves, n);
    memory.floats(this.x, x.length).set(x);
    memory.kernel.linear(this.x, T, m, weight.halves, 4 * m, n, this.y);
    const y = memory.floats(this.y, T * n);
    for (let at = 0; at < y.length; at += n) for (let c = 0; c < n; c++) y[at + c] += b[c];
    return y.slice();
  }

  // What leaves each layer from `layer` on, where x (T, d_model) enters, and their weights (h, T, T) before a cut.
  // A cut is [layer, head, row, column]; null stands for all.
  run(x, layer = 0, cuts = []) {
    const states = [x], all = [];
    for (let l = layer; l < N_LAYERS; l++) {
      const linear = (rows, name) => this.linear(rows, `layers.${l}.${name}`);
      linear(x, "attention.w_qkv");
      const { contexts, weights } = this.attend(x.length / d_model, l, cuts);
      const between = this.norm(add(linear(contexts, "attention.w_o"), x), `layers.${l}.norm_1`);
      x = this.norm(add(linear(gelu(linear(between, "widen")), "narrow"), between), `layers.${l}.norm_2`);
      states.push(x);
      all.push(weights);
    }
    return { states, weights: all };
  }
}
