// The writing model in a worker of the page: writing.js begins it and speaks with it.

import { turn } from "./kernel.js";
import { Writer } from "./writer.js";

// `{ about, wasm, disk }` comes first, then requests, of which the last counts.
let told, writer, latest = 0, earlier = Promise.resolve();

const tell = (message) => postMessage({ turn: latest, told: message });
const fromPage = (name) => new Promise((take, fail) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: { bytes, lost } }) => (bytes ? take(bytes) : fail(new Error(lost)));
  postMessage({ part: name }, [port2]);
});

async function serve(request, own) {
  try {
    const came = (name, have, of) => tell({ kind: "progress", what: name.replace("-", " "), have, of });
    writer ??= new Writer(told, came, told.disk ? fromPage : undefined);
    if (own === latest) for await (const message of writer.answer(request)) {
      if (own !== latest) return;
      tell(message);
      await turn(); // a newer request is heard
    }
  } catch (error) {
    if (own === latest) tell({ kind: "error", text: error.message });
  }
}

addEventListener("message", ({ data }) => {
  if (data.about) told = data;
  else {
    latest = data.turn;
    earlier = earlier.then(() => serve(data.request, data.turn));
  }
});
