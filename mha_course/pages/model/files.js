// The files beside the pages, as scripts, which load from a disk too: each hands its text to `mhaPart`.

const waiting = new Map(), HALVES = new Float32Array(65536); // the value of every float16

for (let bits = 0; bits < HALVES.length; bits++) {
  const exponent = (bits >> 10) & 31, rest = bits & 1023;
  const size = exponent ? (1024 + rest) * 2 ** (exponent - 25) : rest * 2 ** -24;
  HALVES[bits] = bits & 0x8000 ? -size : size;
}

globalThis.mhaPart = (name, text) => waiting.get(name)?.(text);

// The text of a file. Rejects where it does not come; then it may be asked for again.
export async function textOf(folder, name) {
  const script = document.createElement("script");
  try {
    return await new Promise((take, fail) => {
      waiting.set(name, take);
      script.onload = script.onerror = () => fail(new Error("A part of the model did not come: is there a network? Try once more."));
      script.src = `${folder}/${name}.js`;
      document.head.append(script);
    });
  } finally {
    waiting.delete(name);
    script.remove();
  }
}

// Numbers of float16, coded in base64, as float32.
export function numbersIn(text) {
  const raw = atob(text), numbers = new Float32Array(raw.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = HALVES[raw.charCodeAt(2 * i) | (raw.charCodeAt(2 * i + 1) << 8)];
  return numbers;
}
