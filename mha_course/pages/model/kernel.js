// A model's numbers in one memory, and kernel.ts, which computes there. Places are bytes'.

import { bytesOfFile, widen } from "./files.js";

const PAGE = 65536, ABREAST = 4; // bytes of a page of a WebAssembly memory; files that are asked for at a time

// Between two pieces of work: the page may draw, and its reader is heard.
export const turn = () => new Promise((go) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); go(); };
  port2.postMessage(null);
});

export class Memory {
  // `about`: for each file its size, and the tensors in it as [name, bytes that stay as they are, float16 that follow
  // them]; how many words a file has. `wasm`: the bytes of kernel.wasm. `room`: how many float32 each other place has.
  // `came` hears of each file: its name, the bytes that are there, and all.
  constructor({ about, wasm }, room, came = () => {}, fetch = (name) => bytesOfFile(about.folder, name)) {
    Object.assign(this, { about, came, fetch, places: new Map(), coming: new Map(), have: 0 });
    let size = 0;
    const take = (bytes) => {
      const at = size;
      size += Math.ceil(bytes / 16) * 16;
      return at;
    };
    for (const [name, raw, halves] of Object.values(about.parts).flat()) {
      this.places.set(name, { raw: take(raw), halves: take(4 * halves), bytes: raw, length: halves });
    }
    for (const [name, n] of Object.entries(room)) this[name] = take(4 * n);
    if (!globalThis.WebAssembly?.validate(wasm)) throw new Error("The model needs a browser with WebAssembly SIMD.");
    const pages = Math.ceil(size / PAGE), memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
    this.kernel = new WebAssembly.Instance(new WebAssembly.Module(wasm), { env: { memory } }).exports;
    this.buffer = memory.buffer;
  }

  // The part that has a word, and which of its words that is.
  word(id) { return [`words-${Math.floor(id / this.about.shard)}`, id % this.about.shard]; }

  floats(at, length) { return new Float32Array(this.buffer, at, length); }

  // The numbers of a tensor, if there is one of this name: those that were float16, or else were float32.
  tensor(name) {
    const { raw, halves, bytes, length } = this.places.get(name) ?? {};
    return length ? this.floats(halves, length) : bytes && this.floats(raw, bytes / 4);
  }

  // Promises that a part is in memory, or the bytes of one without tensors. What did not come can be asked for again.
  part(name) {
    if (!this.coming.has(name)) {
      this.coming.set(name, this.fetch(name).then((bytes) => this.keep(name, bytes)));
      this.coming.get(name).catch(() => this.coming.delete(name));
    }
    return this.coming.get(name);
  }

  keep(part, all) {
    let from = 0;
    for (const [name] of this.about.parts[part]) {
      const { raw, halves, bytes, length } = this.places.get(name);
      new Uint8Array(this.buffer).set(all.subarray(from, from += bytes), raw);
      widen(all.subarray(from, from += 2 * length), this.floats(halves, length));
    }
    this.came(part, this.have += this.about.sizes[part], this.about.all);
    return from ? null : all;
  }

  // Promises the first of these parts, and asks for a few that follow it.
  first(names) { return names.slice(0, ABREAST).map((name) => this.part(name))[0]; }
}
