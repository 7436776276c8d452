// A typed sentence in the picture of mha_course.explore.n08_real_heads: its `places` are filled.

import { number } from "../../pictures/numbers.js";
import { stateAt } from "../../pictures/states.js";

const ENDS = ["[CLS]", "[SEP]"], LONGEST = 10;

// The largest weight between words, as [link, weight].
function largest(labels, weights) {
  const T = labels.length, word = (i) => !ENDS.includes(labels[i]);
  const top = [...weights.keys()].filter((i) => word(Math.floor(i / T)) && word(i % T))
    .reduce((a, b) => (weights[b] > weights[a] ? b : a));
  return [`${labels[Math.floor(top / T)]} → ${labels[top % T]}`, number(weights[top], 2)];
}

// The scene of a sentence at a layer and head, laid out for a width. `places` are the packed states.
export function headsScene(places, sentence, { layer, head, hide_ends: hidden }, width) {
  const { T } = sentence, scene = stateAt(places, [T - 3, head, hidden], width);
  const kept = Array.from({ length: T }, (_, t) => t).slice(hidden, hidden ? -1 : T);
  const shown = (i) => {
    const whole = sentence.weights(layer, i);
    return Float32Array.from(kept.flatMap((r) => kept.map((c) => Math.round(1e4 * whole[r * T + c]) / 1e4)));
  };
  const labels = kept.map((t) => sentence.labels[t]), titled = (text) => text?.replace(/^layer 0,/, `layer ${layer},`);
  const word = (label) => (/^\d\d –/.test(label) ? sentence.labels[parseInt(label, 10)] : label);
  const written = (label) =>
    (word(label) === label || word(label).length <= LONGEST ? word(label) : `${word(label).slice(0, LONGEST - 1)}…`);
  const marks = scene.marks.map((m) => {
    if (m.kind === "text") return { ...m, text: titled(written(m.text)) };
    if (!("values" in m)) return m;
    const names = { rows: m.rows.map(word), columns: m.columns.map(word), title: titled(m.title) };
    const row = m.kind === "ribbons" ? { row: labels.includes("it") ? labels.indexOf("it") : null } : {};
    return { ...m, ...names, ...row, values: shown(Math.round(100 * m.values[0]) - 1) };
  });
  const whole = sentence.weights(layer, head), [link, most] = largest(sentence.labels, whole);
  let parked = 0;
  for (let t = 0; t < T; t++) parked += (whole[t * T] + whole[t * T + T - 1]) / T;
  return {
    ...scene, marks,
    caption: `Layer ${layer}, head ${head}: strongest link between words: ${link}, ${most}. `
      + `On average a token gives ${Math.round(100 * parked)}% of its weight to [CLS] and [SEP].`,
    alt: scene.alt.replace(/layer 0, head \d+/, `layer ${layer}, head ${head}`),
  };
}
