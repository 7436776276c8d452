// The six layers of all-MiniLM-L6-v2 on one sentence, with weights cut: what mha_lesson.pretrained computes.

import { add, Layers } from "./layers.js";

export const d_model = 384, N_LAYERS = 6, MOST = 128; // tokens of a text: the pages have no more positions
const h = 12, WIDE = 4 * d_model; // the feed-forward's
const SHAPE = { h, h_kv: h, d_k: d_model / h, layers: N_LAYERS, most: MOST, widest: WIDE, eps: 1e-12 };

// x · Φ(x); the error function after Abramowitz and Stegun, 7.1.26, right to 1.5e-7.
function gelu(x) {
  return x.map((v) => {
    const z = Math.abs(v) * Math.SQRT1_2, t = 1 / (1 + 0.3275911 * z);
    const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
      * Math.exp(-z * z);
    return v * (v < 0 ? tail / 2 : 1 - tail / 2);
  });
}

export class Encoder extends Layers {
  constructor(...told) { super(SHAPE, ...told); }

  // What leaves each layer from `layer` on, where x (T, d_model) enters, and their weights (h, T, T) before a cut.
  // A cut is [layer, head, row, column]; null stands for all.
  run(x, layer = 0, cuts = []) {
    const states = [x], all = [];
    for (let l = layer; l < N_LAYERS; l++) {
      const linear = (rows, name, m = d_model) => this.linear(rows, m, `layers.${l}.${name}`);
      linear(x, "attention.w_qkv");
      const { contexts, weights } = this.attend(x.length / d_model, l, cuts);
      const between = this.norm(add(linear(contexts, "attention.w_o"), x), `layers.${l}.norm_1`);
      x = this.norm(add(linear(gelu(linear(between, "widen")), "narrow", WIDE), between), `layers.${l}.norm_2`);
      states.push(x);
      all.push(weights);
    }
    return { states, weights: all };
  }
}
