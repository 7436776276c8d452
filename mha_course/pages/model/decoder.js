// The thirty layers of SmolLM2-135M, with weights cut: mha_lesson's GroupedQueryAttention and KVCache in a page.

import { add, Layers } from "./layers.js";

export const d_model = 576, N_LAYERS = 30, MOST = 256; // tokens of a text, written ones too
const h = 9, h_kv = 3, d_k = 64, d_kv = h_kv * d_k, INNER = 1536;
const BASE = 100_000; // of the rotation
const SHAPE = { h, h_kv, d_k, layers: N_LAYERS, most: MOST, widest: 2 * INNER, eps: 1e-5, causal: true };

// Turns each head of a row by its position: number i goes with i + d_k / 2.
function rotate(row, position) {
  for (let i = 0; i < d_k / 2; i++) {
    const angle = position * BASE ** (-2 * i / d_k), c = Math.cos(angle), s = Math.sin(angle);
    for (let at = i; at < row.length; at += d_k) {
      const a = row[at], b = row[at + d_k / 2];
      row[at] = a * c - b * s;
      row[at + d_k / 2] = b * c + a * s;
    }
  }
}

export class Decoder extends Layers {
  constructor(...told) { super(SHAPE, ...told); }

  // What leaves a layer where the rows x (T, d_model) of positions from `start` on enter, and the last row's weights
  // (h, start + T) before they were cut. Keys and values are kept; those of earlier positions are there. A cut is
  // [layer, head, column] of the last row; a head or column of null stands for all.
  layer(x, start, l, cuts = []) {
    const T = x.length / d_model, n = start + T, width = d_model + 2 * d_kv;
    this.linear(this.norm(x, `${l}.before`), d_model, `${l}.qkv`);
    for (let t = 0; t < T; t++) rotate(this.floats(this.y + 4 * t * width, d_model + d_kv), start + t);
    const own = cuts.map(([of, head, column]) => [of, head, T - 1, column]);
    const { contexts, weights } = this.attend(T, l, own, start);
    const y = add(this.linear(contexts, d_model, `${l}.o`), x);
    const both = this.linear(this.norm(y, `${l}.after`), d_model, `${l}.gate_up`);
    const inner = new Float32Array(both.length / 2);
    for (let t = 0; t < inner.length; t += INNER) for (let c = 0; c < INNER; c++) {
      const gate = both[2 * t + c];
      inner[t + c] = gate / (1 + Math.exp(-gate)) * both[2 * t + INNER + c];
    }
    const last = new Float32Array(h * n);
    for (let i = 0; i < h; i++) last.set(weights.subarray(((i + 1) * T - 1) * n, (i + 1) * T * n), i * n);
    return { x: add(this.linear(inner, INNER, `${l}.down`), y), weights: last };
  }
}
