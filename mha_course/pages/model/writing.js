// The published writing model in a page: it answers any prompt, in a worker, and fetches nothing before it is asked.
//
// A view of `explore.writes()` speaks with a *source*: in JupyterLab the kernel, on the site this file; see offer.js.
// Both are asked the same and tell the same; all is JSON, but here numbers are arrays.
//
// source.ask(request, hear): what was asked before is dropped, its `hear` not called again. Of a request
//   prompt               is 1 to 224 tokens; one that begins as the last one did costs its new tokens only
//   cuts                 are [layer, head, column], null for all: the last token's weight there is 0, the rest stays
//   write                tokens are written, each with the cuts; temperature 0 takes the likeliest, else a seed draws
//   survey               null, or a weight: each ribbon of the last token from it on is cut alone
// hear(told), in this order, with `kind`:
//   progress             { what, have, of }: bytes that came; before and between the others, while files are missing
//   words                { words }: the prompt's T tokens as text; the last one looks
//   ribbons              { layer, weights }, for each layer as it comes: (9 heads · T), before any cut
//   next                 { words: [{ word, p, was }] }: the ten likeliest with the cuts, then others of the ten
//                        without; `was` without cuts
//   written              { word }, for each token
//   one                  { cut, weight, word, p }: of the survey, the likeliest word, and what is left of the first one
//   done                 or, in place of what is left, error: { text }; the same request goes on where it stopped

import { bytesOfFile } from "./files.js";

export class Writing {
  // `about`: what mha_course.pages.writing says; `code`: the script of worker.js; `wasm`: the bytes of kernel.wasm.
  constructor(about, code, wasm) { Object.assign(this, { about, code, wasm, turn: 0 }); }

  ask(request, hear) {
    this.hear = hear;
    this.worker ??= this.begin();
    this.worker.postMessage({ request, turn: ++this.turn });
  }

  begin() {
    const { about, wasm, code } = this, folder = new URL(about.folder, document.baseURI).href;
    const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    worker.onmessage = ({ data: { part, turn, told }, ports: [port] }) => {
      if (port) this.hand(part, port);
      else if (turn === this.turn) this.hear(told);
    };
    worker.onerror = ({ message }) => {
      this.worker = null; // the next request begins anew
      this.hear({ kind: "error", text: `The model's script stopped: ${message}` });
    };
    worker.postMessage({ about: { ...about, folder }, wasm, disk: location.protocol === "file:" });
    return worker;
  }

  // On a disk the worker can load nothing itself.
  hand(part, port) {
    const took = (bytes) => port.postMessage({ bytes }, [bytes.buffer]);
    bytesOfFile(this.about.folder, part).then(took, ({ message }) => port.postMessage({ lost: message }));
  }
}
