// Ribbons to cut: the marks of mha_course.pictures.cut, of the numbers that Python sent or of another source, and what
// the reader does with them.

// A cut is [layer, head, row, column]; null is all of them. A source answers for one sentence:
//   text, labels, weights(layer, head) row by row, effects(layer, head, row): how far that word's last vector moves
//   without each ribbon, moved(cuts): how far each word's does; the last two at once or as a promise.
// Without one a kernel with the model is asked about what Python has not sent.

import { Area, AREAS, largest } from "./areas.js";
import { element, pressable, refill } from "./elements.js";
import { number } from "./numbers.js";
import { curve, pressed } from "./ribbon.js";

const GUESSES = [0.01, 0.1, 0.4, 0.85];
const percent = (share) => `${share < 0.0005 ? 0 : number(100 * share, 1)}%`;
const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
const sameCut = (a, b) => String(a) === String(b);

// The marks, and where things stand. `seen` has labels, word, layer, head, share, weights, own, widest (n_layers, h),
// and `moved`, or null; `cut(j)` whether a ribbon is.
export function cutMarks(seen, page, { heads, ink, roles: { output: colour }, way, size, cut: given }) {
  const { top: TOP, cell: CELL, beside: BESIDE, full: FULL, letter } = given;
  const { labels, word, layer, head, share, weights, own, widest, moved, cut } = seen, T = labels.length, h = 12, n = 6;
  const wide = page >= BESIDE, pitch = wide ? Math.max(15, Math.min(22, Math.floor(272 / T))) : 24;
  const words = labels.map((label) => shortened(label, wide ? 14 : 9));
  const margin = Math.ceil(letter * Math.max(...words.map((w) => w.length))) + 8, numbers = page >= 480 ? 44 : 0;
  const free = page - (wide ? h * CELL + 64 : 0) - 2 * margin - numbers - 60;
  const width = Math.max(60, Math.min(200, Math.floor(0.6 * free))), right = margin + width,
    bars = right + margin + numbers;
  const longest = Math.max(24, Math.min(160, free - width)), tall = T * pitch, y = (j) => TOP + (j + 0.5) * pitch;
  const marks = [], text = (x, at, words, more = {}) =>
    marks.push({ kind: "text", x, y: at, text: words, align: "left", turned: false, bold: false, size, ...more });
  const rect = (x, at, w, high, fill, hollow = false) =>
    marks.push({ kind: "rect", x, y: at, width: w, height: high, colour: fill, hollow, says: "", panel: 0 });
  rect(0, 4, 12, 12, heads[head % heads.length], head >= 8);
  text(18, 10, `layer ${layer}, head ${head}`, { bold: true });
  text(margin - 8, 31, "takes", { align: "right" });
  text(right + 8, 31, "from");
  if (numbers) text(bars - 12, 31, "weight", { align: "right" });
  text(bars, 31, numbers ? "last vector moves" : "moves");
  const high = Math.min(0.36 * tall, 136), scissors = [], ribbons = [];
  let at = Math.min(Math.max(y(word) - high / 2, TOP), TOP + tall - high);
  for (let j = 0; j < T; j++) {
    const size = ((1 - share) * weights[j] + share * own[j]) * high, end = Math.min(size, pitch - 2),
      a = at + size / 2, b = y(j);
    at += size;
    const [upper, lower] = [-1, 1].map((side) =>
      curve(way, margin, right, a + (side * size) / 2, b + (side * end) / 2));
    marks.push({ kind: "path", points: [...upper, ...lower.reverse()].flat(),
      colour: cut(j) ? `${ink}55` : `${heads[head % heads.length]}CC`, dashed: false, width: 2, filled: true });
    ribbons.push({ a, b, size, end });
    scissors.push([margin + width / 2, (a + b) / 2, cut(j) === 1 ? "✂" : "",
      { size: 18, align: "center", bold: true }]);
  }
  words.forEach((label, j) => {
    text(margin - 8, y(j), label, { align: "right", bold: j === word });
    text(right + 8, y(j), label);
    if (numbers) text(bars - 12, y(j), weights[j] >= 0.005 ? number(weights[j], 2) : "", { align: "right" });
  });
  words.forEach((_, j) => {
    const length = longest * Math.min(1, (moved?.[j] ?? 0) / FULL);
    rect(bars, y(j) - 6, Math.max(length, 0.01), 12, colour);
    text(bars + length + 6, y(j), moved ? percent(moved[j]) : "", { bold: j === word });
  });
  for (const sign of scissors) text(...sign);
  const left = wide ? page - h * CELL - 4 : 34, above = wide ? 0 : TOP + tall + 14, top = above + TOP;
  text(left - 30, above + 10, `widest ribbon of “${labels[word]}” in each head`, { bold: true });
  text(left - 30, top + (n * CELL) / 2, "layer", { align: "center", turned: true });
  text(left + (h * CELL) / 2, top + n * CELL + 30, "head", { align: "center" });
  for (let i = 0; i < n; i++) {
    text(left - 8, top + (i + 0.5) * CELL, String(i), { align: "right" });
    for (let j = 0; j < h; j++) {
      const side = (CELL - 4) * Math.sqrt(Math.max(0, widest[i * h + j])),
        [x, z] = [left + (j + 0.5) * CELL, top + (i + 0.5) * CELL];
      rect(x - CELL / 2 + 1, z - CELL / 2 + 1, CELL - 2, CELL - 2, `${ink}22`);
      rect(x - side / 2, z - side / 2, side, side, heads[j % heads.length]);
    }
  }
  for (let j = 0; j < h; j++) text(left + (j + 0.5) * CELL, top + n * CELL + 12, String(j), { align: "center" });
  rect(left + head * CELL - 1, top + layer * CELL - 1, CELL + 2, CELL + 2, ink, true);
  const places = { margin, right, pitch, tall, ribbons, bars, left, top, longest };
  return { marks, places, width: page, height: Math.max(TOP + tall, top + n * CELL + 30) + 4 };
}

// The words: in the last column each one's ribbon, which is cut, before it, where words can be chosen, the word itself.
class CutWords extends Area {
  constructor(m, theme) {
    const { labels } = m.cut.seen;
    super({ ...m, rows: labels, columns: ["word", "weight"], title: m.cut.table().title }, theme, labels.length, 2);
  }
  box(r, c) {
    const { margin, right, pitch, bars } = this.m.places, y = this.theme.cut.top + r * pitch;
    return c ? [right + 3, y + 1, bars - right - 8, pitch - 2] : [1, y + 1, margin - 4, pitch - 2];
  }
  hit(x, y) {
    const { margin, right, pitch, tall, ribbons, bars, longest } = this.m.places, { way, cut: { top } } = this.theme;
    if (y < top || y >= top + tall || x > bars + longest + 50) return null;
    if (x >= right || x <= margin) return [Math.floor((y - top) / pitch), Number(x >= right)];
    const j = pressed(way, ribbons, (x - margin) / (right - margin), y);
    return j < 0 ? null : [j, 1];
  }
  says(r, c) { return this.m.cut.of(r, c === 1); }
  spoken(r, c) { return this.says(r, c); }
  cell(r, c) {
    const { weights, cut, moved } = this.m.cut.seen;
    const moves = moved ? `, moves by ${percent(moved[r])}` : "";
    return c ? `${number(weights[r], 2)}${cut(r) ? " (cut)" : ""}${moves}` : "";
  }
  get placed() { return new Set(this.m.rows).size === this.rows; }
  gist(cells) { return cells.length === this.rows
    ? largest(cells.map(([name, r, c]) => [name, this.m.cut.seen.weights[r], this.cell(r, c)])) : ""; }
  table() { return this.m.cut.table(); }
  draw() {}
}

class CutMap extends Area {
  constructor(m, theme) {
    const named = (n, what) => Array.from({ length: n }, (_, i) => `${what} ${i}`);
    super({ ...m, rows: named(6, "layer"), columns: named(12, "head"), title: "widest ribbon in each head" }, theme, 6,
      12);
  }
  box(r, c) {
    const { left, top } = this.m.places, { cell } = this.theme.cut;
    return [left + c * cell, top + r * cell, cell, cell];
  }
  hit(x, y) {
    const { left, top } = this.m.places, { cell } = this.theme.cut,
      [r, c] = [Math.floor((y - top) / cell), Math.floor((x - left) / cell)];
    return r >= 0 && r < 6 && c >= 0 && c < 12 ? [r, c] : null;
  }
  cell(r, c) { return number(this.m.cut.seen.widest[12 * r + c], 2); }
  says(r, c) { return `layer ${r}, head ${c}: widest ribbon ${this.cell(r, c)}`; }
  spoken(r, c) { return this.says(r, c); }
  draw() {}
}
Object.assign(AREAS, { cutwords: CutWords, cutmap: CutMap });

export class Cut {
  constructor(view) {
    this.view = view;
    [this.share, this.source] = [0, null];
    this.forget();
    view.el.classList.add("mha-cut");
    const tools = element("div", { className: "mha-tools" });
    tools.innerHTML = `<p></p><label>ribbons: weight <input type="range" min="0" max="1" step="0.05" value="0"
      aria-label="ribbons from weight to what a cut does" aria-valuetext="weight"> what a cut does</label><span
      class="mha-presses"></span><span class="mha-presses"></span>`;
    view.head.append(tools);
    this.note = element("p", { className: "mha-note" });
    view.stage.after(this.note);
    [this.now, this.buttons, this.wholes] = tools.querySelectorAll("p,span");
    this.tools = tools;
    this.wholes.append(pressable("cut the head", () => this.toggle([this.sent.layer, this.sent.head, null, null])),
                       pressable("cut the layer", () => this.toggle([this.sent.layer, null, null, null])));
    this.slider = tools.querySelector("input");
    this.slider.addEventListener("input", () => { this.share = Number(this.slider.value); this.again();
      this.slider.ariaValueText = ["weight", `${Math.round(100 * this.share)}% of the way`, "what a cut does"][
        Math.ceil(this.share) + Math.floor(this.share)];
    });
  }

  // The scene that Python sent, with the marks of what the reader has done.
  filled(scene) {
    const { cut } = scene, before = this.sent;
    [this.given, this.sent] = [scene, cut];
    if (before && before.text !== cut.text) this.source = null;
    if (before && (before.text !== cut.text || before.word !== cut.word)) this.forget();
    const seen = this.look(),
      page = Math.max(300, Math.min(860, (this.view.el.clientWidth || 868) / this.view.unit - 8)),
        { theme } = this.view;
    const { marks, places, width, height } = cutMarks(seen, page, theme);
    const own = ["cutwords", "cutmap"].map((kind) => ({ kind, cut: this, places }));
    const isWide = page >= theme.cut.beside;
    if (this.isWide !== isWide) { // on a phone the ribbons shall be high
      this.isWide = isWide;
      if (this.isWide) this.tools.append(this.wholes);
      else this.note.before(this.wholes);
    }
    this.tell();
    this.note.textContent = this.remark();
    return { ...scene, marks: [...marks, ...own], width, height, caption: this.sentence() };
  }

  look() {
    const { sent, source } = this, { layer, head } = sent, base = source ? this.fromSource(layer, head) : sent;
    this.seen = { ...base, layer, head, share: this.share, moved: this.cuts.length ? this.moved : null,
      cut: (j) => this.isCut(j, base.word) };
    return this.seen;
  }

  fromSource(layer, head) {
    const { source } = this, { labels } = source, T = labels.length,
      row = (l, h) => source.weights(l, h).slice(this.word * T, (this.word + 1) * T);
    const key = [layer, head, this.word].join();
    const effects = this.effects ??= {};
    if (!effects[key]) {
      effects[key] = { waits: true };
      // null: another head was asked for meanwhile
      Promise.resolve(source.effects(layer, head, this.word)).then((own) => {
        effects[key] = own;
        if (own && this.effects === effects) this.again();
      });
    }
    this.wide ??= Float32Array.from({ length: 72 },
      (_, i) => Math.max(...row(Math.floor(i / 12), i % 12).slice(1, -1)));
    const own = effects[key], weights = row(layer, head);
    return { labels, word: this.word, weights, own: own.waits ? weights : own, widest: this.wide };
  }

  get many() { return Boolean(this.source || (this.view.ask && this.sent.words.length > 1)); }
  get chooses() { return Boolean(this.source) || this.sent.words.length > 1; }

  // 1 where this ribbon itself is cut, 2 where its head or layer is, else 0.
  isCut(j, word) {
    const here = [this.sent.layer, this.sent.head, word, j];
    const cuts = this.cuts.filter((cut) => cut.every((at, i) => at === null || at === here[i]));
    return cuts.some((cut) => cut[3] === j) ? 1 : cuts.length ? 2 : 0;
  }

  again() { if (this.given) this.view.show(this.given); }

  forget() { [this.cuts, this.done, this.mended, this.moved, this.guess, this.effects, this.wide] =
    [[], [], "", null, null, null, null]; }

  press(field, r, c) {
    const { seen, sent } = this;
    if (field instanceof CutMap) { // both sliders move
      this.view.choose("layer", r);
      return this.view.choose("head", c);
    }
    if (c) return this.toggle([sent.layer, sent.head, seen.word, r]);
    if (!this.chooses) return this.view.say(this.of(r, false));
    if (!this.source) return this.view.choose("word", this.sent.words.indexOf(r));
    this.forget();
    this.word = r;
    this.changed();
  }

  toggle(cut) {
    const rest = this.cuts.filter((other) => !sameCut(other, cut));
    const mends = rest.length < this.cuts.length;
    const mended = mends || this.many || !rest.length ? "" : " The other cut is mended: two at once need the model.";
    this.set(mends ? rest : this.many ? [...rest, cut] : [cut], [this.cuts], mended);
  }

  set(cuts, before = [this.cuts], mended = "") {
    this.done.push(...before);
    [this.cuts, this.mended] = [cuts, mended];
    const done = (moved) => { if (this.cuts === cuts) { this.moved = moved; this.again(); } };
    if (!cuts.length) this.moved = null;
    else if (this.source) Promise.resolve(this.source.moved(cuts)).then(done);
    else if (cuts.length === 1 && this.isHere(cuts[0])) this.moved = this.stored(cuts[0]);
    else {
      this.moved = null;
      this.view.ask({ text: this.sent.text, cuts });
    }
    this.changed();
  }

  isHere([layer, head, row]) {
    const { sent } = this;
    return layer === sent.layer && (head === null || head === sent.head) && (row === null || row === sent.word);
  }

  // Whether what these cuts do can be shown now: without a model, of one in the head that is seen.
  knows({ cuts }) { return Array.isArray(cuts) && cuts.every((cut) => Array.isArray(cut) && cut.length === 4)
    && (this.many || cuts.length < 2 && cuts.every((cut) => this.isHere(cut))); }

  // What Python has sent of a cut in the head that is seen.
  stored([, head, , column]) {
    const { sent } = this, T = sent.labels.length, at = column ?? (head === null ? T + 1 : T);
    return sent.moves.slice(at * T, (at + 1) * T);
  }

  // What the kernel answers.
  told({ cuts, moved }) {
    if (!sameCut(cuts, this.cuts)) return;
    this.moved = moved;
    this.again();
  }

  changed() {
    this.again();
    this.view.canvas.dispatchEvent(new CustomEvent("mha-state", { detail: this.state, bubbles: true }));
  }

  // Another source. Of the sentence that is seen already the cuts stay.
  use(source) {
    const { seen, cuts } = this, stays = source.text === this.state.text, it = source.labels.indexOf("it");
    this.forget();
    this.source = source;
    // no mark
    this.word = stays ? seen.word : it > 0 ? it
      : Math.max(1, source.labels.findLastIndex((label) => /[\p{L}\p{N}]$/u.test(label)));
    this.set(stays ? cuts : []);
  }

  get state() {
    const { seen, cuts, share } = this;
    return { text: this.source?.text ?? this.sent.text, layer: seen.layer, head: seen.head, word: seen.word, cuts,
      share };
  }
  set state({ text, layer, head, word, cuts = [], share = 0 }) {
    this.slider.value = this.share = share;
    this.view.choose("layer", layer);
    this.view.choose("head", head);
    if (text === (this.source?.text ?? this.sent.text)) {
      if (this.source) this.word = word;
      if (this.seen.word === word || this.source) this.set(cuts);
    }
    this.again();
  }

  of(r, ribbon) {
    const { seen } = this, [word, other] = [seen.labels[seen.word], seen.labels[r]];
    if (!ribbon && r === seen.word) return `“${word}”: its ribbons are the ones you see`;
    if (!ribbon) return this.chooses ? `press to see what “${other}” takes`
      : `what “${other}” takes is not stored here: that needs the model`;
    const done = seen.cut(r) === 1, moved = seen.moved ? `, its vector moves by ${percent(seen.moved[r])}` : "";
    const first = `${word} → ${other}: weight ${number(seen.weights[r], 2)}${moved}`;
    return done ? `${first}; cut: press to mend it` : `${first}; press to cut it`;
  }

  sentence() {
    const { seen, cuts, guess } = this, { labels, word, layer, head, weights } = seen, it = `“${labels[word]}”`;
    if (!cuts.length) {
      const top = weights.indexOf(Math.max(...weights)),
        first = `In layer ${layer}, head ${head}, ${it} takes most from “${labels[top]}”: ${number(weights[top], 2)}. `;
      if (guess === null) return `${first}How far does its last vector move without that ribbon? Guess, then cut it.`;
      return `${first}Your guess: by ${number(100 * guess)}%. Now cut it: press on the ribbon, or Enter.`;
    }
    if (!seen.moved) return "The model runs again …";
    const [l, h, row, j] = cuts.at(-1), far = seen.moved[word],
      moved = `the last vector of ${it} moves by ${percent(far)}.${this.mended}`;
    if (cuts.length === 6 && cuts.every((cut, i) =>
      sameCut(cut, [i, null, row, j]))) return `Without ${labels[row]} → ${labels[j]} in all 72 heads ${moved}`;
    if (cuts.length > 1) return `With ${cuts.length} cuts ${moved}`;
    if (row === null) return `Without layer ${l}${h === null ? "" : `, head ${h},`} ${moved}`;
    if (l !== layer || h !== seen.head)
      return `Without ${labels[row]} → ${labels[j]} in layer ${l}, head ${h}, ${moved}`;
    const verdict = weights[j] >= 0.3 && far < 0.1 ? " A wide ribbon, and little hangs on it." : weights[j] < 0.1
      && far >= 0.1 ? " A thin ribbon, and much hangs on it." : "";
    const where = `layer ${l}, head ${h}`;
    return `Without ${labels[word]} → ${labels[j]} (${number(weights[j], 2)}, ${where}) ${moved}${guess === null ? ""
      : ` Your guess: ${number(100 * guess)}%.`}${verdict}`;
  }

  // What stands below the picture once one ribbon of this head is cut.
  remark() {
    const { seen, cuts, sent } = this, { labels, weights, own, layer, head, word } = seen, T = labels.length;
    if (cuts.length !== 1 || !seen.moved || !sameCut(cuts[0].slice(0, 3), [layer, head, word])) return "";
    const j = cuts[0][3], by = (list) => 1 + list.filter((v) => v > list[j]).length;
    const rank = `Of the ${T} ribbons of “${labels[word]}” in this head it is number `
      + `${by([...weights])} by weight, and number ${by([...own])} by what a cut does.`;
    const row = this.source ? "The rest of the row stays as it was."
      : `The rest of the row stays as it was`
        + `; made to add up to 1 again, it would move by ${percent(sent.rescaled[j])}.`;
    return `${rank} ${row}${layer === 5 ? " No layer follows layer 5, so no other word moves." : ""}`;
  }

  table() {
    const { labels, word, layer, head, weights, moved } = this.seen, more = (of) => (moved ? [of] : []);
    const rows = labels.map((label, j) => [label, number(weights[j], 2), ...more(percent(moved?.[j]))]);
    return { title: `what “${labels[word]}” takes in layer ${layer}, head ${head}`,
      head: ["from", "weight", ...more("its last vector moves by")], rows };
  }

  // What is seen beside the sentence once something is cut: its remark, and which other words move most.
  get heard() {
    const { labels, moved, word } = this.seen;
    if (!moved) return "";
    const others = labels.map((label, j) => [`“${label}”`, j === word ? 0 : moved[j], percent(moved[j])])
      .filter(([, far]) => far >= 0.0005);
    const told = others.length ? `Other words move: ${largest(others)}.` : "";
    return `${this.note.textContent} ${told}`.trim();
  }

  // First there is a guess to make; later the last cut may be taken back, or be made in all heads.
  tell() {
    const { buttons, cuts, seen, many } = this, [, , row, j] = cuts.at(-1) ?? [], made = [];
    if (!cuts.length && this.guess === null) made.push("Guess: ",
      ...GUESSES.map((g) => pressable(`${100 * g}%`, () => { this.guess = g; this.again(); })));
    if (cuts.length) made.push(pressable("undo", () => this.set(this.done.pop(), [])));
    if (many && cuts.length === 1 && j !== null)
      made.push(pressable(`cut “${seen.labels[j]}” in all heads`,
        () => this.set([0, 1, 2, 3, 4, 5].map((l) => [l, null, row, j]))));
    const names = made.map((b) => b.textContent ?? b).join();
    if (names === this.names) return;
    this.names = names;
    const had = refill(buttons, ...made);
    // to be cut next
    if (had && this.guess !== null && !cuts.length) this.view.left =
      [0, seen.weights.indexOf(Math.max(...seen.weights)), 1];
    if (had && !buttons.firstElementChild) this.view.canvas.focus({ preventScroll: true });
  }

  read() {
    const { cursor, fields } = this.view, words = cursor ? fields[cursor[0]].says(cursor[1], cursor[2]) ?? "" : "";
    const idle = "Press on a ribbon: the model runs on without it.";
    if (this.now.textContent !== (words || idle)) this.now.textContent = words || idle;
  }
}

export const CUT_STYLE = `
.mha-cut .mha-reading{display:none}
.mha-tools{display:flex;flex-wrap:wrap;gap:2px 1.4em;align-items:center}
.mha-tools p{flex:1 0 100%;margin:0;color:var(--mha-text)}
.mha-tools label{display:flex;gap:.5em;align-items:center;min-height:28px}
.mha-presses{display:flex;flex-wrap:wrap;gap:4px .5em;align-items:center}
.mha-presses button{min-width:3em;min-height:26px;font:inherit;color:inherit;background:none;border:1px solid;
border-radius:4px;cursor:pointer}
.mha-note{min-height:1.45em;margin:.2em 0;max-width:120ch}
@media (max-width:480px){.mha-note{min-height:7.3em}}
`;
