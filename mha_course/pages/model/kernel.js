// A model's numbers in one memory, and what computes there: kernel.ts where the browser has SIMD. Places are bytes'.

import { widen } from "./files.js";

const PAGE = 65536; // bytes of a page of a WebAssembly memory

// kernel.ts' `linear` for a browser without SIMD.
function plain(memory) {
  return (...at) => {
    const [x, w, b, y] = [at[0], at[3], at[5], at[6]].map((place) => place / 4), [, T, m, , n] = at;
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

export class Memory {
  // `parts`: for each file the tensors in it, as [name, bytes that stay as they are, float16 that follow them].
  constructor(parts) {
    Object.assign(this, { parts, places: new Map(), size: 0 });
    for (const [name, raw, halves] of Object.values(parts).flat()) {
      this.places.set(name, { raw: this.take(raw), halves: this.take(4 * halves), bytes: raw, length: halves });
    }
  }

  // A place for so many bytes more.
  take(bytes) {
    const at = this.size;
    this.size += Math.ceil(bytes / 16) * 16;
    return at;
  }

  // Makes the memory, and `kernel`, what computes in it. `wasm`: the bytes of kernel.wasm.
  begin(wasm) {
    this.simd = globalThis.WebAssembly?.validate(wasm) ?? false;
    if (this.simd) {
      const pages = Math.ceil(this.size / PAGE), memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
      this.kernel = new WebAssembly.Instance(new WebAssembly.Module(wasm), { env: { memory } }).exports;
      this.buffer = memory.buffer;
    } else {
      this.buffer = new ArrayBuffer(this.size);
      this.kernel = { linear: plain(new Float32Array(this.buffer)) };
    }
  }

  floats(at, length) { return new Float32Array(this.buffer, at, length); }

  // Puts a file's bytes where they belong.
  keep(part, bytes) {
    let from = 0;
    for (const [name] of this.parts[part]) {
      const place = this.places.get(name);
      new Uint8Array(this.buffer).set(bytes.subarray(from, from += place.bytes), place.raw);
      widen(bytes.subarray(from, from += 2 * place.length), this.floats(place.halves, place.length));
    }
  }
}
