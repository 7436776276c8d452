// The six layers of all-MiniLM-L6-v2 on one sentence, with weights cut: what mha_lesson.pretrained computes.

import { add, softmax } from "./rows.js";

export const d_model = 384, N_LAYERS = 6;
const h = 12, d_k = d_model / h;

// Each row of x with mean 0 and variance 1, then gain and bias.
function norm(x, gain, bias) {
  for (let at = 0; at < x.length; at += d_model) {
    const row = x.subarray(at, at + d_model);
    let mean = 0, variance = 0;
    for (const v of row) mean += v;
    mean /= d_model;
    for (const v of row) variance += (v - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / d_model + 1e-12);
    for (let c = 0; c < d_model; c++) row[c] = (row[c] - mean) * scale * gain[c] + bias[c];
  }
  return x;
}

// x · Φ(x); the error function after Abramowitz and Stegun, 7.1.26, right to 1.5e-7.
function gelu(x) {
  for (let i = 0; i < x.length; i++) {
    const z = Math.abs(x[i]) * Math.SQRT1_2, t = 1 / (1 + 0.3275911 * z);
    const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
      * Math.exp(-z * z);
    x[i] *= x[i] < 0 ? tail / 2 : 1 - tail / 2;
  }
  return x;
}

// Sets weights (h, T, T) to zero, the rest of a row stays. A cut is [layer, head, row, column]; null stands for all.
function cut(weights, T, cuts) {
  const each = (one, n) => (one === null ? Array.from({ length: n }, (_, i) => i) : [one]);
  for (const [, head, row, column] of cuts)
    for (const i of each(head, h)) for (const r of each(row, T)) for (const c of each(column, T)) weights[(i * T + r)
      * T + c] = 0;
}

// `linear(x, name)` multiplies rows by a layer's matrix and adds its bias; `tensor(name)` has the other numbers.
export class Encoder {
  constructor(linear, tensor) { Object.assign(this, { linear, tensor }); }

  // `sums` (T, d_model): what words, positions and segment add up to.
  embed(sums) { return norm(sums, this.tensor("norm.weight"), this.tensor("norm.bias")); }

  // What leaves each layer from `layer` up to `end`, where x (T, d_model) enters, and their weights (h, T, T).
  run(x, layer = 0, cuts = [], end = N_LAYERS) {
    const states = [x], weights = [];
    for (let l = layer; l < end; l++) {
      const seen = this.attend(x, l);
      cut(seen.weights, seen.T, cuts.filter((one) => one[0] === l));
      x = this.write(x, this.mix(seen), l);
      states.push(x);
      weights.push(seen.weights);
    }
    return { states, weights };
  }

  // Weights (h, T, T), and what they are weights of: Q, K and V side by side, (T, 3 · d_model).
  attend(x, l) {
    const T = x.length / d_model, qkv = this.linear(x, `layers.${l}.attention.w_qkv`),
      weights = new Float32Array(h * T * T);
    for (let head = 0; head < h; head++) for (let r = 0; r < T; r++) {
      const row = weights.subarray((head * T + r) * T, (head * T + r + 1) * T), q = 3 * d_model * r + d_k * head;
      for (let c = 0; c < T; c++) {
        const k = 3 * d_model * c + d_model + d_k * head;
        let dot = 0;
        for (let i = 0; i < d_k; i++) dot += qkv[q + i] * qkv[k + i];
        row[c] = dot / Math.sqrt(d_k);
      }
      softmax(row);
    }
    return { T, qkv, weights };
  }

  // The heads' contexts side by side, (T, d_model).
  mix({ T, qkv, weights }) {
    const context = new Float32Array(T * d_model);
    for (let head = 0; head < h; head++) for (let r = 0; r < T; r++) for (let c = 0; c < T; c++) {
      const weight = weights[(head * T + r) * T + c], to = d_model * r + d_k * head,
        v = 3 * d_model * c + 2 * d_model + d_k * head;
      for (let i = 0; i < d_k; i++) context[to + i] += weight * qkv[v + i];
    }
    return context;
  }

  // What comes after a layer's heads, for each row alone: W^O, x, norm, feed-forward, x, norm.
  write(x, context, l) {
    const of = (name) => this.tensor(`layers.${l}.${name}`),
      linear = (rows, name) => this.linear(rows, `layers.${l}.${name}`);
    const between = norm(add(linear(context, "attention.w_o"), x), of("norm_1.weight"), of("norm_1.bias"));
    const wide = gelu(linear(between, "widen"));
    return norm(add(linear(wide, "narrow"), between), of("norm_2.weight"), of("norm_2.bias"));
  }

  // How `row` leaves the last layer if its weights in this head, each alone, are cut: (T, d_model). `states` are those
  // of a whole run. A cut changes nothing but this row of what leaves layer l; of the last layer only this row is made.
  // Waits for `turn` now and then, and gives up where that is false.
  async eachCut(states, l, head, row, turn) {
    const x = states[l], { T, qkv, weights } = this.attend(x, l), last = N_LAYERS - 1;
    const rows = new Float32Array(T * d_model), contexts = new Float32Array(T * d_model), at = row * d_model;
    const put = (c, from, context) => {
      rows.set(from.subarray(at, at + d_model), c * d_model);
      contexts.set(context.subarray(at, at + d_model), c * d_model);
    };
    const whole = this.mix({ T, qkv, weights });
    for (let c = 0; c < T; c++) {
      put(c, x, whole);
      const weight = weights[(head * T + row) * T + c], to = c * d_model + d_k * head,
        v = 3 * d_model * c + 2 * d_model + d_k * head;
      for (let i = 0; i < d_k; i++) contexts[to + i] -= weight * qkv[v + i];
    }
    const after = this.write(rows, contexts, l);
    if (l === last) return after;
    for (let c = 0; c < T; c++) {
      const other = states[l + 1].slice();
      other.set(after.subarray(c * d_model, (c + 1) * d_model), at);
      const entering = this.run(other, l + 1, [], last).states.at(-1);
      put(c, entering, this.mix(this.attend(entering, last)));
      if (!(await turn())) return null;
    }
    return this.write(rows, contexts, last);
  }
}
