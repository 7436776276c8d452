// Linear layers over one memory that holds all weights: by kernel.wat where the browser has SIMD, else by plain script.

const PAGE = 65536; // bytes of a page of a WebAssembly memory

// y (T, n) = x (T, m) Wᵀ + b; all are numbers' places in `memory`, T is a multiple of 4.
function plain(memory) {
  return (x, T, m, w, n, b, y) => {
    for (let i = 0; i < n; i++) for (let t = 0, row = w + i * m; t < T; t += 4) {
      const from = x + t * m, to = y + t * n + i;
      let a = memory[b + i], c = a, d = a, e = a;
      for (let j = 0; j < m; j++) {
        const v = memory[row + j], p = from + j;
        a += v * memory[p];
        c += v * memory[p + m];
        d += v * memory[p + 2 * m];
        e += v * memory[p + 3 * m];
      }
      memory[to] = a;
      memory[to + n] = c;
      memory[to + 2 * n] = d;
      memory[to + 3 * n] = e;
    }
  };
}

// A memory for so many float32, and what multiplies in it. `bytes` is kernel.wasm.
export function kernel(bytes, length) {
  if (!globalThis.WebAssembly?.validate(bytes)) {
    const memory = new Float32Array(length);
    return { memory, multiply: plain(memory), simd: false };
  }
  const pages = Math.ceil((4 * length) / PAGE), memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const { linear } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { page: { memory } }).exports;
  const multiply = (x, T, m, w, n, b, y) => linear(4 * x, T, m, 4 * w, n, 4 * b, 4 * y);
  return { memory: new Float32Array(memory.buffer), multiply, simd: true };
}
