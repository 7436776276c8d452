// The states of an explorer, as mha_course.pictures.states packs them.

// The arrays of mha_course.pictures.states.pack_arrays, by number: each is made when it is first asked for.
export function arraysOf(sizes, bytes) {
  const made = [];
  let end = 0;
  const starts = sizes.map(([n, wide]) => (end += n * wide) - n * wide);
  return (number) => made[number] ??= decoded(sizes[number], bytes, starts[number]);
}

function decoded([n, wide, scale], bytes, at) {
  const numbers = new Int32Array(n), empty = 8 * (4 - wide);
  for (let k = 0; k < wide; k++) for (let i = 0; i < n; i++) numbers[i] |= bytes[at++] << (empty + 8 * k);
  return scale ? Float32Array.from(numbers, (v) => (v >> empty) / scale) : new Float32Array(numbers.buffer);
}

// A scene with its arrays in place of their numbers.
export function fill(scene, array) {
  const of = (number) => (Number.isInteger(number) ? array(number) : number), { flow } = scene;
  const marks = scene.marks.map((m) => {
    if ("steps" in m) return { ...m, steps: [...of(m.steps)] };
    return "values" in m ? { ...m, values: of(m.values), blocked: of(m.blocked) } : m;
  });
  const whole = (own) => own && { ...own, ...Object.fromEntries(Object.entries(own.arrays).map(([name, i]) => [name,
    of(i)])) };
  return { ...scene, marks, cut: whole(scene.cut), writes: whole(scene.writes), flow: flow && { ...flow,
    writes: of(flow.writes), bias: of(flow.bias) } };
}

// The rows of mha_course.pictures.states.as_tables.
export function rowsOf({ of, tables }) {
  const next = tables.map((table) => ({ names: Object.keys(table), at: 0 }));
  return of.map((t) => {
    const { names, at } = next[t], row = {};
    for (const name of names) row[name] = tables[t][name][at];
    next[t].at++;
    return row;
  });
}

// What mha_course.pictures.states.pack_states made; also as a Blob.
export async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer(), [size] = new Uint32Array(buffer, 0, 1);
  const packed = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const [marks, states] = [packed.marks, packed.states].map(rowsOf);
  return { ...packed, marks, states, array: arraysOf(packed.arrays, new Uint8Array(buffer, 4 + size)) };
}

// The position that is shown for one that is asked for, where a node of the tree has those that are left.
export const possible = ({ input }, position, node) =>
  (position < node.length ? position : input === "range" ? node.length - 1 : 0);

// The nodes of the tree on the path to the state that is asked for.
export function path({ tree, controls }, asked) {
  const nodes = [tree];
  asked.forEach((position, k) => {
    const node = nodes.at(-1);
    nodes.push(node && position >= 0 ? node[possible(controls[k], position, node)] : null);
  });
  return nodes;
}

// The scene that is asked for, laid out for a width; null where it is not among these states.
export function stateAt(packed, asked, width) {
  const state = packed.states[path(packed, asked).at(-1)];
  if (!state) return null;
  const layout = state.layouts.at(packed.widths.findIndex((w) => w <= 1.01 * width)); // a canvas shrinks as much
  const [wide, high, ...steps] = packed.layouts[layout];
  let mark = 0;
  const scene = { ...state, width: wide, height: high, marks: steps.map((step) => packed.marks[mark += step]) };
  return fill(scene, (i) => packed.array(state.arrays[i]));
}
