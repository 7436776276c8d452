// The way from one picture to the next.

export const MOTION = 250, FRAME = 16; // ms on the way from one picture to the next; its first picture is a frame on
export const still = matchMedia("(prefers-reduced-motion: reduce)");

export const mix = (a, b, t) => {
  if (typeof a === "number" && typeof b === "number") return a + (b - a) * t;
  if (Array.isArray(b)) return a?.length === b.length ? b.map((v, i) => mix(a[i], v, t)) : b;
  return a && b && typeof b === "object" ? Object.fromEntries(Object.entries(b).map(([k, v]) => [k, mix(a[k], v, t)]))
    : b;
};
const MOVES = ["text", "path", "rect", "dot", "arrows"];

// What `mix` leaves as it is on the whole way.
export const rests = (a, b) => {
  if (typeof b === "number") return typeof a !== "number" || a === b;
  if (Array.isArray(b)) return a?.length !== b.length || b.every((v, i) => rests(a[i], v));
  return !a || !b || typeof b !== "object" || Object.entries(b).every(([k, v]) => rests(a[k], v));
};

// For each mark the one it comes from: those of a kind move if there are as many as before.
export function origins(before, after) {
  const waiting = new Map(), of = (marks, kind) => marks.filter((m) => m.kind === kind);
  for (const kind of MOVES) {
    const old = of(before, kind);
    waiting.set(kind, old.length === of(after, kind).length ? old.values() : [].values());
  }
  return after.map(({ kind }) => waiting.get(kind)?.next().value);
}
