// The published writing model in a page: it answers any prompt, in a worker, and fetches nothing before it is asked.
//
// A view of `explore.writes()` speaks with a *source*: in JupyterLab the kernel, on the site this file. Both are asked
// the same and tell the same; every message is JSON but for arrays of numbers.
//
// On a site that has the model `window.mhaWriter` is there, and nothing of it elsewhere:
//   { first, all, open }      bytes until the first ribbons of a dozen tokens, and until the next word: say them first
//   await open()              a source; fetches its script (some 50 KB)
//
// source.ask(request, hear)   what was asked before is dropped: its `hear` is not called again
//   request = {
//     prompt: "The capital of France is",      text of 1 to 224 tokens
//     cuts: [[23, 4, 3]],     [layer, head, column]: the last token's weight in this layer and head on this token is
//                             set to 0, the rest of the row stays. A head or column of null stands for all of them
//     write: 20,              how many tokens are written (0: none). The cuts hold for every token that is written
//     temperature: 0, seed: 0,                 0 takes the likeliest token; otherwise they are drawn, alike for a seed
//     survey: null,           or a least weight, .05: then every ribbon of the last token from this weight on is cut
//                             alone (some 70 for a short prompt, two seconds)
//   }
//
// hear(told) is called with, in this order:
//   { kind: "progress", what, have, of }       bytes that came, of all; `what` is coming: "words", "layer 3"; before
//                                              and between the others, and never when all is there
//   { kind: "words", words }                   the prompt's T tokens as text: "The", " capital"; the last one looks
//   { kind: "ribbons", layer, weights }        one for each of the 30 layers, as it comes: Float32Array (9 heads · T),
//                                              before any cut: the last token's weight on each token
//   { kind: "next", words: [{ word, p, was }] }        probability with the cuts, and without: the ten likeliest with
//                                              the cuts, likeliest first, then those of the ten likeliest without
//                                              that are not among them. Without cuts p is was
//   { kind: "written", word, p }               one for each token that is written; p at temperature 1
//   { kind: "one", cut, weight, word, p }      survey: with this cut alone, the probability of the first word without
//                                              cuts, and which word is likeliest now
//   { kind: "done" }
// or, in the place of what is left of them:
//   { kind: "error", text, again }             a sentence for the reader; `again`: a file did not come, and the same
//                                              request will go on where it stopped
//
// A prompt that begins as the last one did is quicker: only its new tokens are computed. Once all files are there no
// network is needed; the browser's cache keeps them.

import { bytesOfFile } from "./files.js";

export class Writing {
  // `about`: what mha_course.pages.writing says; `code`: the script of writer.js; `wasm`: the bytes of kernel.wasm.
  constructor(about, code, wasm) { Object.assign(this, { about, code, wasm, turn: 0 }); }

  ask(request, hear) {
    this.hear = hear;
    this.worker ??= this.begin();
    this.worker.postMessage({ request, turn: ++this.turn });
  }

  begin() {
    const worker = new Worker(URL.createObjectURL(new Blob([this.code], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => {
      if (data.part) this.hand(data.part);
      else if (data.turn === this.turn) this.hear(data.told);
    };
    worker.onerror = ({ message }) => {
      this.worker = null; // the next request begins anew
      this.hear({ kind: "error", text: `The model's script stopped: ${message}`, again: false });
    };
    const { about, wasm } = this, folder = new URL(about.folder, document.baseURI).href;
    worker.postMessage({ about: { ...about, folder }, wasm, disk: location.protocol === "file:" });
    return worker;
  }

  // On a disk the worker can load nothing itself.
  async hand(part) {
    try {
      const bytes = await bytesOfFile(this.about.folder, part);
      this.worker.postMessage({ part, bytes }, [bytes.buffer]);
    } catch (error) {
      this.worker.postMessage({ part, lost: error.message });
    }
  }
}
