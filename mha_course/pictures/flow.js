// The whole computation: what made a number.

import { told } from "./areas.js";
import { element } from "./elements.js";
import { still } from "./motion.js";
import { number, sum } from "./numbers.js";

// (rows, inner) times (inner, columns), row by row.
const product = (a, b, rows, inner, columns) => Float32Array.from({ length: rows * columns }, (_, i) => {
  let sum = 0;
  for (let n = 0; n < inner; n++) sum += a[Math.floor(i / columns) * inner + n] * b[n * columns + (i % columns)];
  return sum;
});

// softmax(Q Kᵀ / √d_k) V of a few tokens, as mha_lesson computes it. Q and V are (T, d_k), Kᵀ (d_k, T), row by row;
// `blocked` is (T, T) of 0 and 1, or null.
export function attend(q, k, v, d_k, blocked = null) {
  const T = q.length / d_k;
  const products = product(q, k, T, d_k, T), scores = products.map((s) => s / Math.sqrt(d_k)),
    weights = new Float32Array(T * T);
  for (let r = 0; r < T; r++) {
    const row = Array.from(scores.subarray(r * T, r * T + T), (s, c) => (blocked?.[r * T + c] ? -Infinity : s));
    const top = Math.max(...row), exps = row.map((s) => Math.exp(s - top)), sum = exps.reduce((a, b) => a + b);
    weights.set(exps.map((e) => e / sum), r * T);
  }
  return { products, scores, masked: scores, weights, context: product(weights, v, T, T, d_k) };
}

const two = (v) => number(v, Number.isInteger(v) ? null : 2);
const argmax = (list) => list.reduce((best, v, i) => (Math.abs(v) > Math.abs(list[best]) ? i : best), 0);

const PAIRS = ["products", "scores", "masked", "weights"]; // blocks of a number for each query and key

export class Flow {
  constructor(view) {
    this.view = view;
    this.mine = {}; // what the reader has made of Q, K and V, for each head that was changed
    view.el.classList.add("mha-flow");
    this.strip = element("div", { className: "mha-strip" }, element("p"), element("div", { ariaHidden: true }));
    view.stage.after(this.strip);
    const { canvas } = view;
    canvas.addEventListener("pointerdown", (e) => this.press(e));
    canvas.addEventListener("pointermove", (e) => this.drag(e));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { this.held = null; });
  }

  show(flow) {
    const before = this.flow, { view } = this, other = before?.words.join() !== flow.words.join();
    Object.assign(this, { flow, fields: {} });
    flow.last = flow.blocks.at(-1);
    flow.blocks.forEach((name, i) => { this.fields[name] = view.fields[i]; });
    this.names = new Map(flow.blocks.map((name, i) => [view.fields[i], name]));
    if (other) [this.pick, this.column] = [flow.pick.slice(), {}];
    view.canvas.style.touchAction = flow.by_hand ? "pan-x" : "";
    if (flow.by_hand) this.again();
    const known = !still.matches && !other ? before.blocks : flow.blocks;
    this.fresh = flow.blocks.filter((name) => !known.includes(name));
    this.turned = before && (before.last !== flow.last || other);
  }

  // The block of a new step or example comes into sight, also once the kernel has shown the example's controls.
  follow() {
    if (!this.turned) return;
    this.see();
    setTimeout(() => this.see(), 300);
  }

  // On a narrow page the products stand one below the other.
  see() {
    const { view } = this;
    if (view.scene.width >= 700 || !view.el.isConnected) return;
    const f = this.fields[this.flow.last], [, top] = f.box(0, 0), [, end, , high] = f.box(f.rows - 1, 0);
    view.follow([0, top - 22, 0, end + high + 40 - top]);
  }

  get sentence() { return this.strip.firstChild.textContent; }
  // The same for who listens, who has read what to do at the first time.
  get heard() { return this.made(...this.now(), true).says.split("; drag")[0]; }
  get sticks() { return getComputedStyle(this.strip).position === "sticky" ? this.strip.offsetHeight : 0; }

  // New blocks fade in.
  alpha(field) { return this.fresh.includes(this.names.get(field)) ? this.view.way : 1; }

  again() {
    const { flow, fields } = this, { head, d_k } = flow, blocked = fields.masked?.blocked;
    if (!fields.v) return;
    const { q, k, v } = this.mine[head] ?? this.given();
    const made = { q, k, v, ...attend(q, k, v, d_k, blocked) };
    for (const [name, values] of Object.entries(made)) if (fields[name]) fields[name].values = values;
    if (!fields.concat) return;
    const { rows, columns } = fields.concat, concat = fields.concat.values.slice();
    for (const [h, { q, k, v }] of Object.entries(this.mine)) {
      const context = attend(q, k, v, d_k, blocked).context;
      for (let r = 0; r < rows; r++) concat.set(context.subarray(r * d_k, (r + 1) * d_k), r * columns + h * d_k);
    }
    fields.concat.values = concat;
    if (fields.output) fields.output.values = product(concat, flow.w_o, rows, columns, fields.output.columns);
  }

  given() { return Object.fromEntries(["q", "k", "v"].map((name) => [name, this.fields[name].values])); }

  change([i, r, c], to) {
    const field = this.view.fields[i], name = this.names.get(field), far = name === "v" ? 20 : 4, { head } = this.flow;
    const mine = { ...this.mine[head] ?? this.given(), [name]: field.values.slice() };
    mine[name][r * field.columns + c] = Math.max(-far, Math.min(far, to));
    this.mine[head] = mine;
    this.again();
    this.pick[name === "k" ? 1 : 0] = name === "k" ? c : name === "q" ? r : this.pick[0]; // what the line speaks of
    this.follows = ["weights", this.flow.last].filter((one, n, all) => this.fields[one] && one !== all[n - 1])
      .filter((one) => !"qkv".includes(one)).map((one) => {
        const f = this.fields[one], row = [...f.values.slice(this.pick[0] * f.columns, (this.pick[0] + 1) * f.columns)];
        return `${one} of ${this.flow.words[this.pick[0]]}: ${row.map(two).join(", ")}`;
      });
    this.view.draw();
  }

  movable(cell) { return cell && this.flow.by_hand
    && ["q", "k", "v"].includes(this.names.get(this.view.fields[cell[0]])); }
  step(cell) { return this.names.get(this.view.fields[cell[0]]) === "v" ? 1 : 0.5; }
  value([i, r, c]) { const f = this.view.fields[i]; return f.values[r * f.columns + c]; }

  press(e) {
    this.view.point(e);
    const cell = this.view.cursor;
    if (!cell) return;
    if (this.movable(cell)) {
      this.held = { cell, y: e.clientY, value: this.value(cell) };
      this.view.canvas.setPointerCapture(e.pointerId);
    } else this.keep(cell);
  }

  drag(e) {
    if (!this.held) { this.view.canvas.style.cursor = this.movable(this.view.cursor) ? "ns-resize" : ""; return; }
    const { cell, y, value } = this.held;
    this.view.cursor = cell;
    this.change(cell, value + Math.round((y - e.clientY) / 12) * this.step(cell));
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return false; // the browser's own
    const by = { "+": 1, "=": 1, "-": -1, "−": -1 }[e.key], cell = this.view.cursor;
    if (e.key === "Enter" && cell) { this.follows = this.keep(cell) ? ["kept"] : []; return true; }
    if (!by || !this.movable(cell)) return false;
    this.change(cell, this.value(cell) + by * this.step(cell));
    return true;
  }

  // A click keeps a row and a column, which every step then explains.
  keep([i, r, c]) {
    const name = this.names.get(this.view.fields[i]);
    if (PAIRS.includes(name)) this.pick = [r, c];
    else if (name !== "k") [this.pick[0], this.column[name]] = [r, c];
    this.view.draw();
    return name !== "k";
  }

  // [name, row, column] of the cell under the pointer, or else of the pair that was kept, in the last step.
  now() {
    const at = this.view.cursor;
    if (at) return [this.names.get(this.view.fields[at[0]]), at[1], at[2]];
    const [i, j] = this.pick, name = this.flow.last, f = this.fields[name];
    return [name, i, PAIRS.includes(name) ? j : this.column[name]
      ?? argmax([...f.values.slice(i * f.columns, (i + 1) * f.columns)])];
  }

  // The cells that made a number: [block, row or null for all, column or null, role].
  makers(name, r, c) {
    const { flow } = this, before = flow.blocks.includes("masked") ? "masked" : "scores";
    return {
      q: [["x", r, null, "output"]], k: [["x", c, null, "output"]], v: [["x", r, null, "output"]],
      products: [["q", r, null, "query"], ["k", null, c, "key"]],
      scores: [["products", r, c]], masked: [["scores", r, c]], weights: [[before, r, null]],
      context: [["weights", r, null], ["v", null, c, "value"]],
      concat: Math.floor(c / flow.d_k) === flow.head ? [["context", r, c % flow.d_k, "value"]] : [],
      output: [["concat", r, null, "value"]],
    }[name] ?? [];
  }

  words(name, r, c) {
    if (PAIRS.includes(name)) return [[r, "query"], [c, "key"]];
    if (name === "k") return [[c, "key"]];
    return [[r, { q: "query", v: "value", context: "query" }[name] ?? "output"]];
  }

  mark(g) {
    const [name, r, c] = this.now(), { view } = this;
    this.lit = this.makers(name, r, c).filter(([block]) => this.fields[block]);
    for (const [block, row, column, role] of [...this.lit, [name, r, c, "text"]]) {
      const f = this.fields[block], [x0, y0] = f.box(row ?? 0, column ?? 0);
      const [x1, y1, w, h] = f.box(row ?? f.rows - 1, column ?? f.columns - 1);
      const box = [x0 - 1, y0 - 1, x1 + w - x0 + 2, y1 + h - y0 + 2];
      for (const [width, colour] of [[4.5, `rgb(${view.colours.page})`],
        [2.5, role === "text" ? view.colours.text : this.tint(role)]]) {
        g.lineWidth = width;
        g.strokeStyle = colour;
        g.strokeRect(...box);
      }
    }
    const tokens = view.scene.marks.filter((mark) => mark.kind === "text");
    for (const [at, role] of this.words(name, r, c)) this.tag(g, tokens[at], role);
    if (!PAIRS.includes(name)) return;
    const f = this.fields[name], [left, y, , high] = f.box(r, 0);
    const [x, low, wide, h] = f.box(f.rows - 1, c), [query, key] = [r, c].map((at) => this.flow.words[at]);
    const below = low + h + 9,
      [from, to] = this.tag(g, { x: x + wide / 2, y: below, text: key, align: "center" }, "key");
    const sides = Object.values(this.fields).map((o) => o.box(0, o.columns - 1))
      .filter(([at, level]) => at < left && level === f.box(0, 0)[1]);
    const gap = left - Math.max(0, ...sides.map(([at, , side]) => at + side)), needs = g.measureText(query).width + 16;
    const beside = from >= needs ? { x: from - 6, align: "right" } : { x: to + 6 }; // the key's name
    this.tag(g, { text: query,
      ...(gap >= needs ? { x: left - 8, y: y + high / 2, align: "right" } : { ...beside, y: below }) }, "query");
  }

  // A token's name, in its role's colour; says from where to where.
  tag(g, { x, y, text, align = "left" }, role) {
    const { view } = this, { size } = view.theme;
    g.font = `600 ${size}px ${view.font}`;
    const width = g.measureText(text).width, at = x - { left: 0, center: 0.5, right: 1 }[align] * width;
    const from = Math.max(2, Math.min(view.scene.width - width - 2, at));
    g.fillStyle = view.theme.roles[role];
    g.fillRect(from - 4, y - size / 2 - 2.5, width + 8, size + 5);
    view.write(g, text, from, y, "#FFFFFF", "left", true);
    return [from - 4, from + width + 4];
  }

  // A role's colour as a line. Without a role, the head's.
  tint(role) {
    const { theme } = this.view;
    return this.view.lighter(role ? theme.roles[role] : theme.heads[this.flow.head % theme.heads.length]);
  }

  // What made a number: a sentence, and the parts as bars (their labels, and which one is meant).
  made(name, r, c, aloud = false) {
    const { flow, fields } = this, at = (block, row, column) =>
      fields[block].values[row * fields[block].columns + column];
    const line = (n, f) => Array.from({ length: n }, (_, i) => f(i));
    const { words, d_k } = flow, T = words.length, names = aloud ? told(words, flow.by_hand ? "" : "token")
      : words.map((word) => (flow.by_hand ? word : `“${word}”`));
    const value = at(name, r, c), [word, other] = [names[r], names[c]],
      arrow = aloud ? `query ${word}, key ${other}` : `${words[r]} → ${words[c]}`;
    // Products that add up: all of them where they are few, else what `many` says of them.
    const added = (start, pairs, labels, many) => {
      const parts = pairs.map(([a, b]) => a * b), terms = pairs.map(([a, b]) => `${two(a)} · ${two(b)}`).join(" + ");
      return { parts, labels,
        says: `${start}: ${parts.length <= 4 ? `${terms} = ${two(value)}` : many(parts, argmax(parts))}` };
    };
    const blocked = fields[name].blocked?.[r * fields[name].columns + c];
    switch (name) {
      case "products":
        return added(`${word} · ${other}`, line(d_k, (d) => [at("q", r, d), at("k", d, c)]), null,
                     (parts, top) => `${d_k} products add up to ${two(value)}; the largest is ${two(parts[top])}`);
      case "scores":
        return { parts: line(T, (j) => at("scores", r, j)), labels: flow.words, meant: c,
                 says: `${arrow}: ${two(at("products", r, c))} ÷ √${d_k} = ${two(value)}` };
      case "masked":
        return { parts: line(T, (j) => (fields.masked.blocked?.[r * T + j] ? 0 : at("scores", r, j))),
          labels: flow.words, meant: c,
                 says: `${arrow}: ${blocked ? "blocked, −∞ in place of " + two(at("scores", r, c))
                   : two(value) + ", as it was"}` };
      case "weights": {
        const hidden = fields.masked?.blocked,
          parts = line(T, (j) => (hidden?.[r * T + j] ? 0 : Math.exp(at("scores", r, j))));
        const power = hidden?.[r * T + c] ? "e^−∞ = 0" : `e^${two(at("scores", r, c))} = ${two(parts[c])}`;
        return { parts, labels: flow.words, meant: c,
          says: `${arrow}: ${power}, of the row’s sum ${two(sum(parts))} that is ${two(value)}` };
      }
      case "context":
        return added(`${word}, number ${c}`, line(T, (j) => [at("weights", r, j), at("v", j, c)]), flow.words,
          (parts, top) =>
          `${T} values, each times its weight, add up to ${two(value)}; `
            + `most is from ${names[top]}: ${two(parts[top])}`);
      case "concat":
        return { parts: [], says: `${word}, number ${c}: ${two(value)}, number ${c % d_k} of head ${Math.floor(c
          / d_k)}` };
      case "output": {
        if (flow.w_o) {
          const { columns } = fields.concat, pairs =
            line(columns, (i) => [at("concat", r, i), flow.w_o[i * fields.output.columns + c]]);
          const heads = line(columns, (i) => Math.floor(i / d_k));
          return { heads, ...added(`${word}, number ${c}`, pairs, heads.map((h) => `head ${h}`)) };
        }
        const n = fields.output.columns, all = fields.output.rows * n, write = (h) => flow.writes[h * all + r * n + c];
        const parts = line(flow.n_heads, write), bias = flow.bias ? flow.bias[c] : 0, top = argmax(parts);
        return { parts, labels: parts.map((_, h) => `head ${h}`), meant: flow.head, heads: parts.map((_, h) => h),
                 says: `${word}, number ${c}: the heads write ${two(sum(parts))} together, head ${top} alone `
                   + `${two(parts[top])}; with the bias ${two(bias)} that is ${two(value)}` };
      }
      default: {
        const what = { x: "the vector", q: "the query", k: "the key", v: "the value" }[name],
          [token, number] = name === "k" ? [other, r] : [word, c];
        const from = flow.blocks.includes("x") && name !== "x" ? `, from its row of X (${fields.x.columns} numbers)`
          : "";
        return { parts: [], says: `${what} of ${token}, number ${number}: ${two(value)}${from}${flow.by_hand
          ? "; drag it up or down, or press + and −" : ""}` };
      }
    }
  }

  read() {
    const [name, r, c] = this.now(), { parts, labels, meant, says, heads } = this.made(name, r, c);
    const [p, bars] = this.strip.children, { view } = this;
    const below = Math.max(0, ...parts.map((v) => -v)), far = below + Math.max(1e-9, ...parts),
      zero = (100 * below) / far;
    if (p.textContent !== says) p.textContent = says;
    const now = [parts, labels, meant, heads || this.tint()].join();
    if (now === this.bars) return; // most frames on the way change nothing
    this.bars = now;
    bars.replaceChildren(...parts.map((v, i) => {
      const fill = element("i"), bar = element("span", {}, fill);
      const height = (100 * Math.abs(v)) / far,
        colour = heads ? view.theme.heads[heads[i] % view.theme.heads.length] : this.tint();
      fill.style.cssText = `height:${height}%;bottom:${v < 0 ? zero - height : zero}%;background:${colour}`;
      if (meant === i) bar.className = "mha-meant";
      if (labels) bar.append(element("b", { textContent: labels[i] }));
      return bar;
    }));
  }
}

export const FLOW_STYLE = `
.mha-explorer:has(.mha-flow) .mha-caption{min-height:0}
@media (max-width:480px){.mha-explorer:has(.mha-flow) .mha-caption{min-height:2.9em}}
.mha-flow{container-type:inline-size}
.mha-strip{margin-left:-2px;padding-left:4px;min-height:78px;color:var(--mha-text)}
.mha-strip p{margin:0 0 2px;font-weight:600;font-variant-numeric:tabular-nums}
.mha-strip div{display:flex;width:fit-content;max-width:calc(100% - 8px);height:56px;gap:2px}
.mha-strip span{position:relative;width:60px;margin-bottom:20px}
.mha-strip i{forced-color-adjust:none;print-color-adjust:exact;position:absolute;left:0;right:0;min-height:1px}
.mha-strip b{position:absolute;top:calc(100% + 2px);left:-8px;right:-8px;text-align:center;font-weight:400;
line-height:17px;white-space:nowrap}
.mha-strip .mha-meant b{font-weight:700}
.mha-strip .mha-meant{outline:2px solid var(--mha-text)}
@container (max-width:840px){.mha-strip p{min-height:2.9em}}
@container (max-width:700px){
@media (min-height:600px){.mha-strip{position:sticky;bottom:0;z-index:2;background:var(--mha-page)}}
.mha-strip div:has(:nth-child(5) b){height:92px}
.mha-strip :has(:nth-child(5) b) span{margin-bottom:54px}
.mha-strip :has(:nth-child(5) b) b{writing-mode:vertical-rl;text-align:left;left:50%;right:auto;translate:-50%;
line-height:1}
}
`;
