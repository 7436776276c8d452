// A ribbon between two words: the same numbers draw it and say whether it is pressed. `way` is
// mha_course.pictures.marks.WAY: how far along each of its points lies, and how far down.

const REACH = 12; // pixels beside a ribbon that still choose it: a finger needs 24

// From (left, a) to (right, b).
export const curve = (way, left, right, a, b) => way.map(([x, y]) => [left + (right - left) * x, a + (b - a) * y]);

// The ribbon at (x, y), or the nearest within reach, the last drawn of several; -1 where none is. Each goes from a to
// b, `size` high at its left end, `end` at its right; `along` says which share of the way from left to right x is.
export function pressed(way, ribbons, along, y) {
  const i = Math.max(1, way.findIndex(([x]) => x >= along)), [[x0, y0], [x1, y1]] = [way[i - 1], way[i]];
  const down = y0 + ((y1 - y0) * (along - x0)) / (x1 - x0);
  const far = ribbons.map(({ a, b, size, end = size }) =>
    Math.max(0, Math.abs(y - a - (b - a) * down) - (size + (end - size) * down) / 2));
  const nearest = Math.min(...far);
  return nearest <= REACH ? far.lastIndexOf(nearest) : -1;
}
