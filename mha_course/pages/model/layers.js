// What the layers of both models do with rows of numbers.

import { Memory } from "./kernel.js";

export function add(x, y) {
  const sums = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) sums[i] = x[i] + y[i];
  return sums;
}

// Of a row times a scale, in its place.
export function softmax(row, scale = 1) {
  let most = -Infinity, sum = 0;
  for (const v of row) most = Math.max(most, v);
  for (let j = 0; j < row.length; j++) sum += row[j] = Math.exp((row[j] - most) * scale);
  for (let j = 0; j < row.length; j++) row[j] /= sum;
  return row;
}

// A model's memory, in which its layers compute.
export class Layers extends Memory {
  // `shape`: h heads of d_k numbers, h_kv of them with keys and values; layers; most rows of a text, a multiple of 4;
  // the widest row; what stands below a norm's root; whether a row sees earlier ones only. The rest as of a `Memory`.
  constructor(shape, told, ...more) {
    const { h, h_kv, d_k, layers, most, widest } = shape, d_kv = h_kv * d_k, share = h / h_kv, wide = most * widest;
    super(told, { x: wide, y: wide, scratch: share * most * most, cache: layers * 2 * d_kv * most }, ...more);
    Object.assign(this, { ...shape, d_kv, share });
  }

  // Each row of x over its root mean square, times gain; where there is a bias, its mean is taken off first.
  norm(x, name) {
    const gain = this.tensor(name), bias = this.tensor(`${name}.bias`), y = new Float32Array(x.length), n = gain.length;
    for (let at = 0; at < x.length; at += n) {
      const row = x.subarray(at, at + n);
      let mean = 0, squares = 0;
      if (bias) for (const v of row) mean += v / n;
      for (const v of row) squares += (v - mean) ** 2;
      const scale = 1 / Math.sqrt(squares / n + this.eps);
      for (let c = 0; c < n; c++) y[at + c] = (row[c] - mean) * scale * gain[c] + (bias?.[c] ?? 0);
    }
    return y;
  }

  // Rows x (T, m) through a matrix of the model and its bias, if any: (T, n), which stand at `y` until the next product
  // does. A matrix that is not in float32 has so many bits; one in 8 takes a row at a time.
  linear(x, m, name, bits = 4) {
    const { kernel, scratch } = this, { raw, halves, bytes, length } = this.places.get(name), T = x.length / m;
    const n = (bytes ? 8 * bytes / bits : length) / m, bias = this.tensor(`${name}.bias`);
    this.floats(this.x, x.length).set(x);
    if (!bytes) kernel.linear(this.x, T, m, halves, 4 * m, n, this.y);
    else if (T === 1) kernel.one(this.x, m, raw, halves, n, this.y, scratch, bits);
    else kernel.many(this.x, T, m, raw, halves, n, this.y, scratch);
    const y = this.floats(this.y, T * n);
    if (bias) for (let at = 0; at < y.length; at += n) for (let c = 0; c < n; c++) y[at + c] += bias[c];
    return y;
  }

  // Takes T rows of queries, keys and values that stand at `y`; those of the rows before `start` are in the layer's
  // cache: keys (most, d_kv), values (d_kv, most). Gives contexts, (T, h · d_k), with weights cut, and all weights,
  // (h, T, start + T), before. A cut is [layer, head, row, column], null for all: it becomes 0, the others stay.
  attend(T, layer, cuts, start = 0) {
    const { kernel, h, h_kv, d_k, d_kv, share, most, x, scratch } = this, d = h * d_k, width = d + 2 * d_kv;
    const n = start + T, wide = Math.ceil(n / 4) * 4, rows = share * T, own = cuts.filter(([l]) => l === layer);
    const keys = this.cache + 4 * layer * 2 * d_kv * most, values = keys + 4 * d_kv * most;
    const [k, v] = [keys, values].map((at) => this.floats(at, d_kv * most)), qkv = this.floats(this.y, T * width);
    for (let t = 0; t < T; t++) {
      const row = qkv.subarray(t * width + d, (t + 1) * width);
      k.set(row.subarray(0, d_kv), (start + t) * d_kv);
      for (let c = 0; c < d_kv; c++) v[c * most + start + t] = row[d_kv + c];
    }
    const contexts = new Float32Array(T * d), weights = new Float32Array(h * T * n), some = this.floats(x, rows * d_k);
    for (let g = 0; g < h_kv; g++) { // heads that share keys and values are rows of one product
      const each = (work) => {
        for (let r = 0; r < rows; r++) work(r, Math.floor(r / share), g * share + r % share);
      };
      each((r, t, i) => some.set(qkv.subarray(t * width + i * d_k, t * width + (i + 1) * d_k), r * d_k));
      kernel.linear(x, rows, d_k, keys + 4 * g * d_k, 4 * d_kv, wide, scratch);
      each((r, t, i) => {
        const row = this.floats(scratch + 4 * r * wide, wide), seen = this.causal ? start + t + 1 : n;
        softmax(row.subarray(0, seen), 1 / Math.sqrt(d_k));
        row.fill(0, seen);
        weights.set(row.subarray(0, n), (i * T + t) * n);
        for (const [, head, at, column] of own) {
          if (i === (head ?? i) && t === (at ?? t)) row.fill(0, column ?? 0, (column ?? n) + 1);
        }
      });
      kernel.linear(scratch, rows, wide, values + 4 * g * d_k * most, 4 * most, d_k, x);
      each((r, t, i) => contexts.set(some.subarray(r * d_k, (r + 1) * d_k), t * d + i * d_k));
    }
    return { contexts, weights };
  }
}
