// What both models do with rows of numbers.

export function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

// Of a row times a scale, in its place.
export function softmax(row, scale = 1) {
  let most = -Infinity, sum = 0;
  for (const v of row) most = Math.max(most, v);
  for (let j = 0; j < row.length; j++) sum += row[j] = Math.exp((row[j] - most) * scale);
  for (let j = 0; j < row.length; j++) row[j] /= sum;
  return row;
}

// Each row of x over its root mean square, times gain; where there is a bias, its mean is taken off first.
export function norm(x, eps, gain, bias) {
  const y = new Float32Array(x.length), n = gain.length;
  for (let at = 0; at < x.length; at += n) {
    const row = x.subarray(at, at + n);
    let mean = 0, squares = 0;
    if (bias) for (const v of row) mean += v / n;
    for (const v of row) squares += (v - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / n + eps);
    for (let c = 0; c < n; c++) y[at + c] = (row[c] - mean) * scale * gain[c] + (bias?.[c] ?? 0);
  }
  return y;
}

// Rows in a model's memory, and their attention: h heads of d_k numbers, of which some share their keys and values.
export class Rows {
  // `most`: rows of the longest text, a multiple of 4; `widest`: numbers of a row; `causal`: a row sees no later ones.
  constructor(memory, { h, h_kv, d_k, layers, most, widest, causal }) {
    const d_kv = h_kv * d_k, share = h / h_kv;
    Object.assign(this, { memory, h, h_kv, d_k, d_kv, share, most, causal });
    const sizes = { x: most * widest, y: most * widest, scores: share * most * most, cache: layers * 2 * d_kv * most };
    for (const [name, n] of Object.entries(sizes)) this[name] = memory.take(4 * n);
  }

  // Takes T rows of queries, keys and values that stand at `y`; those of the rows before `start` are in the layer's
  // cache: keys (most, d_kv), values (d_kv, most). Gives contexts, (T, h · d_k), with weights cut, and all weights,
  // (h, T, start + T), before. A cut is [layer, head, row, column], null for all: it becomes 0, the others stay.
  attend(T, layer, cuts, start = 0) {
    const { memory, memory: { kernel }, h, h_kv, d_k, d_kv, share, most, x, y, scores, causal } = this;
    const d = h * d_k, width = d + 2 * d_kv, n = start + T, wide = Math.ceil(n / 4) * 4, rows = share * T;
    const keys = this.cache + 4 * layer * 2 * d_kv * most, values = keys + 4 * d_kv * most;
    const own = memory.floats(x, rows * d_k), qkv = memory.floats(y, T * width);
    const [k, v] = [keys, values].map((at) => memory.floats(at, d_kv * most));
    for (let t = 0; t < T; t++) {
      const row = qkv.subarray(t * width + d, (t + 1) * width);
      k.set(row.subarray(0, d_kv), (start + t) * d_kv);
      for (let c = 0; c < d_kv; c++) v[c * most + start + t] = row[d_kv + c];
    }
    const contexts = new Float32Array(T * d), weights = new Float32Array(h * T * n);
    const cut = cuts.filter(([l]) => l === layer);
    for (let g = 0; g < h_kv; g++) {
      const places = Array.from({ length: rows }, (_, r) => [Math.floor(r / share), g * share + r % share]);
      places.forEach(([t, i], r) => own.set(qkv.subarray(t * width + i * d_k, t * width + (i + 1) * d_k), r * d_k));
      kernel.linear(x, rows, d_k, keys + 4 * g * d_k, 4 * d_kv, wide, scores);
      places.forEach(([t, i], r) => {
        const row = memory.floats(scores + 4 * r * wide, wide), seen = causal ? start + t + 1 : n;
        softmax(row.subarray(0, seen), 1 / Math.sqrt(d_k));
        row.fill(0, seen);
        weights.set(row.subarray(0, n), (i * T + t) * n);
        for (const [, head, at, column] of cut) {
          if (i === (head ?? i) && t === (at ?? t)) row.fill(0, column ?? 0, (column ?? n) + 1);
        }
      });
      kernel.linear(scores, rows, wide, values + 4 * g * d_k * most, 4 * most, d_k, x);
      places.forEach(([t, i], r) => contexts.set(own.subarray(r * d_k, (r + 1) * d_k), t * d + i * d_k));
    }
    return { contexts, weights };
  }
}
