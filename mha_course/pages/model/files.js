// The files beside the pages: bytes, written as scripts, which load from a disk too. Each hands its bytes to `mhaPart`.

const HALVES = new Float32Array(65536); // the value of every float16
const ESCAPED = new Map([[110, 10], [114, 13]]); // \n and \r; other bytes behind \ are themselves

for (let bits = 0; bits < HALVES.length; bits++) {
  const exponent = (bits >> 10) & 31, rest = bits & 1023;
  const size = exponent ? (1024 + rest) * 2 ** (exponent - 25) : rest * 2 ** -24;
  HALVES[bits] = bits & 0x8000 ? -size : size;
}

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
  const [begins, ends] = [`mhaPart("${name}","`, `");\n`], text = (bytes) => String.fromCharCode(...bytes);
  for (const cache of ["force-cache", "reload"]) {
    const answer = await fetch(url, { cache }).catch(() => null);
    const raw = new Uint8Array(answer?.ok ? await answer.arrayBuffer().catch(() => []) : []);
    const whole = text(raw.subarray(0, begins.length)) === begins && text(raw.subarray(-ends.length)) === ends;
    if (whole) return between(raw, begins.length, ends.length);
  }
  return null;
}

// What a string of a script stands for: it begins and ends so many bytes within the file.
function between(raw, before, after) {
  const end = raw.length - after;
  let to = 0;
  for (let at = before, next; at < end; at = next + 2) {
    next = raw.indexOf(92, at);
    if (next < 0) next = end;
    raw.copyWithin(to, at, next);
    to += next - at;
    if (next < end) raw[to++] = ESCAPED.get(raw[next + 1]) ?? raw[next + 1];
  }
  return raw.subarray(0, to);
}

// Numbers of float16 as float32.
export function widen(bytes, to = new Float32Array(bytes.length / 2)) {
  for (let i = 0; i < to.length; i++) to[i] = HALVES[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
  return to;
}
