// What both engines compute most, in one memory that the page gives: matrices times rows of float32. x, y, w, s and
// their like are places in that memory, in bytes. `tools/kernel.py` makes kernel.wasm of this file.
//
// W in 4 bits: for each 32 numbers of a row 16 bytes at w (0 to 15 in the low halves, 16 to 31 in the high ones) and
// two float32, d and e, at s; a number is d · q + e. In 8 bits: 32 int8 at w, one d at s; a number is d · q.

function plus(sum: v128, a: v128, b: v128): v128 { return f32x4.add(sum, f32x4.mul(a, b)); }

function total(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

// Numbers 4 k to 4 k + 3 of sixteen int8.
function four(v: v128, k: i32): v128 {
  const eight = k < 2 ? i16x8.extend_low_i8x16_s(v) : i16x8.extend_high_i8x16_s(v);
  return f32x4.convert_i32x4_s(k & 1 ? i32x4.extend_high_i16x8_s(eight) : i32x4.extend_low_i16x8_s(eight));
}

// Sixteen int8 times as many numbers at x, to be added up.
function sixteen(v: v128, x: usize): v128 {
  const low = plus(f32x4.mul(v128.load(x), four(v, 0)), v128.load(x, 16), four(v, 1));
  return f32x4.add(low, plus(f32x4.mul(v128.load(x, 32), four(v, 2)), v128.load(x, 48), four(v, 3)));
}

// y (n) = W x (m), W in 4 or 8 bits. `sums`: room for m / 32 numbers.
export function one(x: usize, m: usize, w: usize, s: usize, n: usize, y: usize, sums: usize, bits: i32): void {
  const end = x + 4 * m;
  for (let p = x, q = sums; p < end; p += 128, q += 4) {
    let sum = f32x4.splat(0);
    for (let i: usize = 0; i < 128; i += 16) sum = f32x4.add(sum, v128.load(p + i));
    f32.store(q, total(sum));
  }
  for (const last = y + 4 * n; y < last; y += 4) {
    let sum = f32x4.splat(0), rest: f32 = 0;
    let p = x, q = sums;
    do {
      const v = v128.load(w), d = v128.load32_splat(s);
      if (bits === 4) {
        sum = plus(sum, d, f32x4.add(sixteen(v128.and(v, i8x16.splat(15)), p), sixteen(i8x16.shr_u(v, 4), p + 64)));
        rest += f32.load(s, 4) * f32.load(q); // e · Σ x
      } else sum = plus(sum, d, f32x4.add(sixteen(v, p), sixteen(v128.load(w, 16), p + 64)));
      p += 128, q += 4, w += 4 * bits, s += 32 / bits;
    } while (p < end);
    f32.store(y, total(sum) + rest);
  }
}

// Two columns of y (T, n), at y: those of two rows of m float32 at w, which lie `step` bytes apart.
function pair(x: usize, T: usize, m: usize, w: usize, step: usize, y: usize, n: usize): void {
  const row = <usize>4 * m, line = <usize>4 * n;
  for (const last = y + T * line; y < last; x += 4 * row) {
    let c0 = f32x4.splat(0), c1 = c0, c2 = c0, c3 = c0, d0 = c0, d1 = c0, d2 = c0, d3 = c0;
    for (let q = w, p = x; q < w + row; q += 16, p += 16) {
      const u = v128.load(q), v = v128.load(q + step);
      let z = v128.load(p);
      c0 = plus(c0, u, z), d0 = plus(d0, v, z), z = v128.load(p + row);
      c1 = plus(c1, u, z), d1 = plus(d1, v, z), z = v128.load(p + 2 * row);
      c2 = plus(c2, u, z), d2 = plus(d2, v, z), z = v128.load(p + 3 * row);
      c3 = plus(c3, u, z), d3 = plus(d3, v, z);
    }
    f32.store(y, total(c0)), f32.store(y, total(d0), 4), y += line;
    f32.store(y, total(c1)), f32.store(y, total(d1), 4), y += line;
    f32.store(y, total(c2)), f32.store(y, total(d2), 4), y += line;
    f32.store(y, total(c3)), f32.store(y, total(d3), 4), y += line;
  }
}

// y (T, n) = x (T, m) Wᵀ, W in float32, its rows `step` bytes apart. m is a multiple of 4, n of 2, and where T is none
// up to three more rows of y are written.
export function linear(x: usize, T: usize, m: usize, w: usize, step: usize, n: usize, y: usize): void {
  for (let i: usize = 0; i < 4 * n; i += 8, w += 2 * step) pair(x, T, m, w, step, y + i, n);
}

function open(v: v128, d: v128, e: v128, to: usize): void {
  v128.store(to, plus(e, d, four(v, 0))), v128.store(to, plus(e, d, four(v, 1)), 16);
  v128.store(to, plus(e, d, four(v, 2)), 32), v128.store(to, plus(e, d, four(v, 3)), 48);
}

// y (T, n) = x (T, m) Wᵀ, W in 4 bits; all as above. `rows`: room for two rows of W in float32.
export function many(x: usize, T: usize, m: usize, w: usize, s: usize, n: usize, y: usize, rows: usize): void {
  for (let i: usize = 0; i < 4 * n; i += 8) {
    for (let to = rows; to < rows + 8 * m; to += 128, w += 16, s += 8) {
      const v = v128.load(w), d = v128.load32_splat(s), e = v128.load32_splat(s, 4);
      open(v128.and(v, i8x16.splat(15)), d, e, to), open(i8x16.shr_u(v, 4), d, e, to + 64);
    }
    pair(x, T, m, rows, 4 * m, y + i, n);
  }
}
