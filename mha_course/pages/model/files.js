// The files beside the pages: bytes, written as scripts, which load from a disk too. Each hands its bytes to `mhaPart`.

const ESCAPED = new Map([[110, 10], [114, 13]]); // \n and \r; other bytes behind \ are themselves

globalThis.mhaPart = (_, text) => { globalThis.mhaHanded = text; };

// The bytes of a file. Rejects where it does not come; then it may be asked for again.
export async function bytesOfFile(folder, name) {
  const come = location.protocol === "file:" ? loaded : fetched, bytes = await come(`${folder}/${name}.js`, name);
  if (!bytes) throw new Error("A part of the model did not come: is there a network? Try once more.");
  return bytes;
}

// From a disk: the script runs, and is heard before another one does.
async function loaded(src) {
  const script = Object.assign(document.createElement("script"), { src, charset: "x-user-defined" }); // a sign a byte
  const came = await new Promise((take) => {
    Object.assign(script, { onload: () => take(globalThis.mhaHanded), onerror: () => take(null) });
    document.head.append(script);
  });
  globalThis.mhaHanded = null;
  script.remove();
  const bytes = came && new Uint8Array(came.length);
  for (let i = 0; i < bytes?.length; i++) bytes[i] = came.charCodeAt(i);
  return bytes;
}

// From a server, or the browser's cache, however old: a folder's files never change. What does not come, or comes as
// another file, as where a network asks for a password first, is asked for twice.
async function fetched(url, name) {
  const begins = `mhaPart("${name}","`, ends = `");\n`;
  for (const cache of ["force-cache", "reload"]) {
    const answer = await fetch(url, { cache }).catch(() => null);
    const raw = new Uint8Array(answer?.ok ? await answer.arrayBuffer().catch(() => []) : []);
    const text = (from, to) => String.fromCharCode(...raw.subarray(from, to)), end = raw.length - ends.length;
    if (text(0, begins.length) === begins && text(end) === ends) return between(raw, begins.length, end);
  }
  return null;
}

// What a string of a script stands for, which begins and ends at these bytes of the file.
function between(raw, at, end) {
  let to = 0;
  for (; at < end; at++) raw[to++] = raw[at] === 92 ? ESCAPED.get(raw[++at]) ?? raw[at] : raw[at];
  return raw.subarray(0, to);
}

// Numbers of float16 as float32: the same bits, but that its exponents count from another end.
export function widen(bytes, to = new Float32Array(bytes.length / 2)) {
  const bits = new Uint32Array(to.buffer, to.byteOffset, to.length);
  for (let i = 0; i < to.length; i++) {
    const half = bytes[2 * i] | (bytes[2 * i + 1] << 8);
    bits[i] = ((half & 0x8000) << 16) | ((half & 0x7fff) << 13);
    to[i] *= 2 ** 112;
  }
  return to;
}
