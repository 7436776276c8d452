// A model's numbers in one memory, and what computes there: kernel.ts where the browser has SIMD. Places are bytes'.

import { widen } from "./files.js";

const PAGE = 65536, ABREAST = 4; // bytes of a page of a WebAssembly memory; files that are fetched at a time

// What the encoder needs of kernel.ts, for a browser without SIMD.
function plain(memory) {
  const dot = (a, b, n) => {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += memory[a / 4 + i] * memory[b / 4 + i];
    return sum;
  };
  return {
    linear(x, T, m, w, n, b, y) {
      for (let i = 0; i < n; i++) for (let t = 0; t < T; t++) {
        memory[y / 4 + t * n + i] = memory[b / 4 + i] + dot(x + 4 * t * m, w + 4 * i * m, m);
      }
    },
    scores(x, d, k, step, n, y) {
      for (let c = 0; c < n; c++) memory[y / 4 + c] = dot(x, k + c * step, d) / Math.sqrt(d);
    },
    mix(x, n, v, step, d, y) {
      memory.fill(0, y / 4, y / 4 + d);
      for (let c = 0; c < n; c++) for (let i = 0; i < d; i++) {
        memory[y / 4 + i] += memory[x / 4 + c] * memory[(v + c * step) / 4 + i];
      }
    },
  };
}

export class Memory {
  // `about`: for each file its size, and the tensors in it as [name, bytes that stay as they are, float16 that follow
  // them]. `fetch(name)` promises a file's bytes, `read(name, bytes)` takes those of a file without tensors, `came`
  // hears of each: its name, the bytes that are there, and all.
  constructor({ parts, sizes }, fetch, read, came = () => {}) {
    Object.assign(this, { parts, sizes, fetch, read, came, places: new Map(), size: 0, coming: new Map(), busy: 0 });
    Object.assign(this, { have: 0, all: Object.values(sizes).reduce((a, b) => a + b) });
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
      this.kernel = plain(new Float32Array(this.buffer));
    }
  }

  floats(at, length) { return new Float32Array(this.buffer, at, length); }

  // A tensor's numbers: those that were float16, or else were float32.
  tensor(name) {
    const { raw, halves, bytes, length } = this.places.get(name);
    return length ? this.floats(halves, length) : this.floats(raw, bytes / 4);
  }

  // Promises that a part is in memory. What did not come can be asked for again.
  part(name) {
    if (!this.coming.has(name)) {
      this.coming.set(name, this.fetch(name).then((bytes) => this.keep(name, bytes)));
      this.coming.get(name).catch(() => this.coming.delete(name));
    }
    return this.coming.get(name);
  }

  keep(part, bytes) {
    let from = 0;
    for (const [name] of this.parts[part]) {
      const place = this.places.get(name);
      new Uint8Array(this.buffer).set(bytes.subarray(from, from += place.bytes), place.raw);
      widen(bytes.subarray(from, from += 2 * place.length), this.floats(place.halves, place.length));
    }
    if (!from) this.read(part, bytes);
    this.have += this.sizes[part];
    this.came(part, this.have, this.all);
  }

  // Asks for these parts, a few at a time; who needs one hears what went wrong.
  ahead(names) {
    this.queue = names;
    for (; this.busy < ABREAST; this.busy++) this.some().finally(() => this.busy--);
  }

  async some() {
    for (let name; (name = this.queue.shift());) await this.part(name).catch(() => { this.queue = []; });
  }
}
