// What both models do with rows of numbers.

export function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

export function softmax(row) {
  let most = -Infinity, sum = 0;
  for (const v of row) most = Math.max(most, v);
  for (let j = 0; j < row.length; j++) sum += row[j] = Math.exp(row[j] - most);
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

// The attention of one row, in a model's memory: h heads of d_k numbers, of which some share their keys and values.
export class Heads {
  // `most`: the longest text.
  constructor(memory, { h, h_kv, d_k, most }) {
    Object.assign(this, { memory, h, d_k, share: h / h_kv });
    [this.weights, this.context] = [h * most, h * d_k].map((length) => memory.take(4 * length));
  }

  // Where its query, and n keys and values that lie `step` bytes apart, are in memory: its weights (h, n), and its
  // context (h · d_k) with weights cut. A cut is [head, column], null for all: it becomes 0, the others stay.
  row(query, keys, values, step, n, cuts) {
    const { memory, h, d_k, share } = this, own = memory.floats(this.weights, h * n);
    const each = (work) => {
      for (let i = 0; i < h; i++) work(4 * d_k * i, 4 * d_k * Math.floor(i / share), this.weights + 4 * i * n);
    };
    each((q, kv, w) => memory.kernel.scores(query + q, d_k, keys + kv, step, n, w));
    for (let i = 0; i < h; i++) softmax(own.subarray(i * n, (i + 1) * n));
    const weights = own.slice();
    for (const [head, column] of cuts) for (let i = 0; i < h; i++) for (let c = 0; c < n; c++) {
      if (i === (head ?? i) && c === (column ?? c)) own[i * n + c] = 0;
    }
    each((q, kv, w) => memory.kernel.mix(w, n, values + kv, step, d_k, this.context + q));
    return { weights, context: memory.floats(this.context, h * d_k) };
  }
}
