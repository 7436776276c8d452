// The thirty layers of SmolLM2-135M, with weights cut: mha_lesson's GroupedQueryAttention and KVCache in a page.

import { add, Heads, norm } from "./rows.js";

export const d_model = 576, N_LAYERS = 30, MOST = 256; // tokens of a text, written ones too
const h = 9, h_kv = 3, d_k = 64, d_kv = h_kv * d_k, INNER = 1536;
const BASE = 100_000, EPS = 1e-5, ROWS = 32; // of the rotation; below a norm's root; rows that are multiplied at once

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

export class Decoder {
  // `memory` has the weights; the cache, a row of keys and values for each token, and what is computed lie behind them.
  constructor(memory) {
    this.memory = memory;
    const rows = ROWS * 2 * INNER, sizes = { cache: N_LAYERS * MOST * 2 * d_kv, query: d_model, x: rows, y: rows };
    for (const [name, n] of Object.entries({ ...sizes, scratch: 2 * INNER })) this[name] = memory.take(4 * n);
    this.heads = new Heads(memory, { h, h_kv, d_k, most: MOST });
  }

  norm(x, name) { return norm(x, EPS, this.memory.tensor(name)); }

  // What leaves a layer where the rows x (T, d_model) of positions from `start` on enter, and the last row's weights
  // (h, start + T) before they were cut. Keys and values are kept; those of earlier positions are there. A cut is
  // [layer, head, column]; a head or column of null stands for all.
  layer(x, start, l, cuts = []) {
    const qkv = this.linear(this.norm(x, `${l}.before`), d_model, `${l}.qkv`);
    const { contexts, weights } = this.attend(qkv, start, l, cuts.filter(([of]) => of === l).map(([, ...at]) => at));
    const y = add(this.linear(contexts, d_model, `${l}.o`), x);
    const both = this.linear(this.norm(y, `${l}.after`), d_model, `${l}.gate_up`);
    const inner = new Float32Array(both.length / 2);
    for (let t = 0; t < inner.length; t += INNER) for (let c = 0; c < INNER; c++) {
      const gate = both[2 * t + c];
      inner[t + c] = gate / (1 + Math.exp(-gate)) * both[2 * t + INNER + c];
    }
    return { x: add(this.linear(inner, INNER, `${l}.down`), y), weights };
  }

  // All heads' contexts, (T, d_model), and the last row's weights.
  attend(qkv, start, l, cuts) {
    const { memory, query } = this, width = d_model + 2 * d_kv, T = qkv.length / width, step = 4 * 2 * d_kv;
    const contexts = new Float32Array(T * d_model), keys = this.cache + l * MOST * step;
    let one;
    for (let t = 0; t < T; t++) {
      const row = qkv.subarray(t * width, (t + 1) * width), position = start + t;
      rotate(row.subarray(0, d_model + d_kv), position);
      memory.floats(query, d_model).set(row.subarray(0, d_model));
      memory.floats(keys + position * step, 2 * d_kv).set(row.subarray(d_model));
      one = this.heads.row(query, keys, keys + 4 * d_kv, step, position + 1, cuts);
      contexts.set(one.context, t * d_model);
    }
    return { contexts, weights: one.weights };
  }

  // Rows x (T, m) through a matrix of the model.
  linear(x, m, name) {
    const { memory } = this, { raw, halves, bytes } = memory.places.get(name), n = 2 * bytes / m, T = x.length / m;
    const y = new Float32Array(T * n);
    for (let t = 0; t < T; t += ROWS) {
      const rows = Math.min(ROWS, T - t), fours = Math.ceil(rows / 4) * 4;
      memory.floats(this.x, rows * m).set(x.subarray(t * m, (t + rows) * m));
      if (rows === 1) memory.kernel.one(this.x, m, raw, halves, n, this.y, this.scratch);
      else memory.kernel.many(this.x, fours, m, raw, halves, n, this.y, this.scratch);
      y.set(memory.floats(this.y, rows * n), t * n);
    }
    return y;
  }
}
