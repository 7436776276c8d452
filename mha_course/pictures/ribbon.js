// A ribbon between two words: the same numbers draw it and say whether it is pressed. `way` is
// mha_course.pictures.marks.WAY: how far along each of its points lies, and how far down.

const REACH = 12; // pixels beside a ribbon that still choose it: a finger needs 24

// From (left, a) to (right, b).
export const curve = (way, left, right, a, b) => way.map(([x, y]) => [left + (right - left) * x, a + (b - a) * y]);

// How far beside a ribbon y is where it has come this share `along` its way, 0 on it. It goes from a to b, and is
// `size` high at its beginning, `end` at its end.
export function away(way, { a, b, size, end = size }, along, y) {
  const i = Math.max(1, way.findIndex(([x]) => x >= along)), [[x0, y0], [x1, y1]] = [way[i - 1], way[i]];
  const down = y0 + ((y1 - y0) * (along - x0)) / (x1 - x0);
  return Math.max(0, Math.abs(y - a - (b - a) * down) - (size + (end - size) * down) / 2);
}

// The number of the ribbon there, or of the nearest within reach, of the last drawn of several; -1 where none is.
export function pressed(way, ribbons, along, y) {
  const far = ribbons.map((ribbon) => away(way, ribbon, along, y));
  const nearest = Math.min(...far);
  return nearest <= REACH ? far.lastIndexOf(nearest) : -1;
}
