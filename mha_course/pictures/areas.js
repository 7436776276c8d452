// What is under the pointer: cells, tiles, words and bars, what each of them says, and their table.

import { parse, textOn } from "./colours.js";
import { mix } from "./motion.js";
import { number } from "./numbers.js";
import { curve, pressed } from "./ribbon.js";

// [row, column, weight] of each ribbon, the strong ones last: mha_course.pictures.words.Words.
function linksOf({ values, blocked, columns }, faint) {
  const links = [];
  values.forEach((weight, i) => {
    if (weight >= faint && !blocked?.[i]) links.push([Math.floor(i / columns.length), i % columns.length, weight]);
  });
  return links.sort((a, b) => a[2] - b[2]);
}

const WIDEST = 64; // columns of a table on a page; a file has them all
const range = (n) => Array.from({ length: n }, (_, i) => i);
// A label with the name of its axis, where it is a number or a token: "key 3".
const named = (axis, label = "") => (axis && /^(token )?\d+\b|[“”]/.test(label) && !label.startsWith(`${axis} `)
  ? `${axis} ${label}` : label);
// Names as they are told: tokens in quotes, a mark by its name, one that comes more than once with its count.
const MARKS = { ".": "full stop", ",": "comma", ";": "semicolon", ":": "colon", "?": "question mark",
  "!": "exclamation mark", "'": "apostrophe" };
export const told = (names = [], axis = "") => names.map((name, i) => {
  const all = names.filter((other) => other === name).length,
    n = names.slice(0, i).filter((other) => other === name).length;
  const quoted = /^(query|key|token)$/.test(axis) && name && !/^(token )?\d/.test(name);
  const word = MARKS[name] ?? (quoted ? `“${name}”` : name);
  return `${name && all > 1 ? `${["1st", "2nd", "3rd"][n] ?? `${n + 1}th`} ` : ""}${word}`;
});
// Names in a list, numbers that follow each other as "1 to 5".
const spans = (names) => {
  const runs = [];
  for (const name of names) {
    if (runs.length && Number(name) === Number(runs.at(-1).at(-1)) + 1) runs.at(-1).push(name);
    else runs.push([name]);
  }
  return runs.map((run) => (run.length > 2 ? `${run[0]} to ${run.at(-1)}` : run.join(", "))).join(", ");
};
// A name and what it has: two numbers beside each other would be heard as one.
const valued = (name, text) => [name, text].filter(Boolean).join(/\d$/.test(name) ? ": " : " ");
// The three largest of [name, value, text]; where some are below zero, the lowest, too.
export const largest = (list) => {
  const told = (some) => some.map(([name, , text]) => valued(name, text)).join(", ");
  const sorted = list.sort((a, b) => b[1] - a[1]), low = sorted.slice(3).at(-1);
  return `${list.length > 3 ? "largest " : ""}${told(sorted.slice(0, 3))}`
    + `${low?.[1] < 0 ? `; lowest ${told([low])}` : ""}`;
};
// Arrows and marks as they are heard; after a map's size come its axes, which may be others than query → key.
export const heard = (text) => text.split(/(?<= of )(?=\d+ × \d+, )/).map((part) => {
  const [, row = "query", column = "key"] = part.match(/^\d+ × \d+, (.*?) → (.*?)[;.]/) ?? [], other = row !== "query";
  return part.replace(`${row} → ${column}`, other ? `rows: ${row}, columns: ${column}` : "queries by keys")
    .replace(/(\S+) → ([^\s,.:;]+|\S)/g, other ? "$1, $2" : "query “$1”, key “$2”");
}).join("").replace(/“([.,;:?!'])”/g, (_, mark) => MARKS[mark]);
// Where and what: "k2 = .5", "measured at T = 4: 3".
const parted = (says) => says.match(/^(.*)(?: = |: )(.*)$/s)?.slice(1) ?? ["", says];

// A grid of cells: where each lies (`box`), which one is `hit`, and what it says. `m` is its mark; `pair(r, c)`, where
// it shows pairs of words, is the row and the column of such a map that a cell stands for.
export class Area {
  constructor(m, theme, rows, columns) { Object.assign(this, { m, theme, rows, columns }); }
  gaps(index, every) { return every ? this.theme.break * Math.floor(index / every) : 0; }
  box(r, c) {
    const m = this.m;
    return [m.x + c * m.w + this.gaps(c, m.break_columns), m.y + r * m.h + this.gaps(r, m.break_rows), m.w - m.gap,
      m.h - m.gap];
  }
  hit(x, y) {
    const m = this.m;
    if (x < m.x || y < m.y) return null;
    const place = (d, size, every) => {
      const block = every ? Math.floor(d / (every * size + this.theme.break)) : 0;
      return Math.floor((d - this.theme.break * block) / size);
    };
    const r = place(y - m.y, m.h, m.break_rows), c = place(x - m.x, m.w, m.break_columns);
    return r < this.rows && c < this.columns && this.says(r, c) !== null ? [r, c] : null;
  }
  // The names of a cell's row and column, of those that have some.
  names(r, c) { return `${this.m.rows?.[r]} → ${this.m.columns?.[c]}`; }
  // Whether a cell is known by the names of its row and column.
  get placed() { return [this.m.rows, this.m.columns].every((names) => names?.length); }
  get title() { return [this.m.title?.replace(/^\d/, "head $&"), this.within].filter(Boolean).join(" of "); }
  get told() { return this.names_ ??= { rows: told(this.m.rows, this.m.row_name),
    columns: told(this.m.columns, this.m.column_name) }; }
  row(r) { return named(this.m.row_name, this.told.rows[r]); }
  column(c) { return named(this.m.column_name, this.told.columns[c]); }
  cell(r, c) { return this.says(r, c) ?? ""; }
  raw(r, c) { return this.cell(r, c); } // in a file
  spoken(r, c) { return [[this.row(r), this.column(c)].filter(Boolean).join(", "), this.cell(r, c) || "empty"]
    .filter(Boolean).join(": "); }
  // A whole row, or a column.
  spokenRow(r, c) { return `${this.row(r, c) || `row ${r + 1}`}: ${this.inWords(this.across(r, c))}`; }
  spokenColumn(c) { return `${this.column(c) || `column ${c + 1}`}: ${this.inWords(this.down(c))}`; }
  // What cells [name, row, column, full name] come to, where that is less than all of them.
  gist() { return ""; }
  inWords(cells) { return (cells[0][0] && this.gist(cells))
    || cells.map(([name, r, c]) => valued(name, this.cell(r, c))).join(", "); }
  across(r) { return range(this.columns).map((c) => [this.told.columns[c] ?? "", r, c, this.column(c)]); }
  down(c) { return range(this.rows).map((r) => [this.told.rows[r] ?? "", r, c, this.row(r)]); }
  table(text = "cell") {
    const gists = range(this.rows).map((r) => this.gist(this.across(r))), some = gists.some(Boolean) ? 1 : 0;
    const corner = [this.m.row_name, this.m.column_name].filter(Boolean).join(" → ");
    const shown = this.columns > WIDEST && text === "cell" ? [] : range(this.columns);
    const head = [corner, ...["in words"].slice(0, some), ...shown.map((c) => this.m.columns?.[c] || String(c))];
    return { title: this.title, head,
      rows: gists.map((gist, r) => [this.m.rows?.[r] || String(r), ...[gist].slice(0, some),
        ...shown.map((c) => this[text](r, c))]) };
  }
  // Whether another area shows pairs of the same words.
  same(other) { return [this, other].every((f) => f.pair)
    && String([this.m.rows, this.m.columns]) === String([other.m.rows, other.m.columns]); }
}

class Heatmap extends Area {
  constructor(m, theme) {
    super(m, theme, ...m.shape);
    [this.values, this.blocked] = [m.values, m.blocked];
  }
  says(r, c) { return `${this.m.rows[r]} → ${this.m.columns[c]} = ${this.cell(r, c)}`; }
  cell(r, c) {
    const i = r * this.columns + c;
    if (this.m.mask) return this.values[i] ? "True" : "False";
    return this.blocked?.[i] ? "blocked" : number(this.values[i], this.m.decimals);
  }
  raw(r, c) { return this.blocked?.[r * this.columns + c] ? "blocked"
    : String(Number(this.values[r * this.columns + c].toPrecision(6))); }
  gist(cells) {
    const at = ([, r, c]) => r * this.columns + c, { mask } = this.m;
    const shut = cells.filter((cell) => (mask ? this.values : this.blocked)?.[at(cell)]),
      size = (cell) => this.values[at(cell)];
    const most = mask ? [] : cells.filter((cell) => !shut.includes(cell) && (cells.length < 4 || size(cell)))
      .map((cell) => [/^\d+\b/.test(cell[0]) ? cell[3] : cell[0], size(cell), this.cell(cell[1], cell[2])]);
    const what = mask ? "True" : "blocked", all = shut.length === cells.length ? `all ${what}`
      : `${what}: ${spans(shut.map(([name]) => name))}`;
    return [largest(most), shut.length ? all : mask ? "all False" : ""].filter(Boolean).join("; ");
  }
  pair(r, c) { return [r, c]; }
  // Where each value lies in its map, 0 to 255: Heatmap.levels.
  levels(perRow) {
    const { m, values, blocked, columns } = this, [low, end] = m.limits, out = new Uint8Array(values.length);
    for (let r = 0; r < this.rows; r++) {
      const row = values.subarray(r * columns, (r + 1) * columns);
      let high = end;
      if (perRow) high = row.reduce((top, v, c) =>
        (!blocked?.[r * columns + c] && Number.isFinite(v) ? Math.max(top, Math.abs(v)) : top), 0) || 1;
      row.forEach((v, c) => {
        const share = Math.min(1, Math.max(0, (v - low) / (high - low)));
        out[r * columns + c] = Math.round((Number.isNaN(share) ? 0 : share) * 255);
      });
    }
    return out;
  }
  draw(view, g) {
    const { m } = this, levels = this.levels(view.byRow && m.by_row);
    for (let r = 0; r < this.rows; r++) for (let c = 0; c < this.columns; c++) {
      const i = r * this.columns + c, [x, y, w, h] = this.box(r, c);
      if (this.blocked?.[i]) {
        g.fillStyle = view.hatch(g);
        g.fillRect(x, y, w, h);
        continue;
      }
      const nan = Number.isNaN(this.values[i]), ink = view.ink(m.colours, levels[i]);
      if (nan || m.mask) {
        g.strokeStyle = view.colours.hatch;
        g.lineWidth = 1;
        g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      } else {
        g.fillStyle = ink.css;
        g.fillRect(x, y, w, h);
        if (view.signs.matches && this.values[i] < 0 && !m.numbers) view.strike(g, x, y, w, h);
      }
      if (m.numbers || (nan && m.w >= 24)) {
        const paper = view.colours.page.map((p, k) => p + (ink.parts[k] - p) * (nan ? 0 : ink.parts[3]));
        view.write(g, this.cell(r, c), x + w / 2, y + h / 2, textOn(paper));
      }
    }
    for (const [r, c] of m.marks) view.frame(g, this.box(r, c), 2);
  }
  // Lines around a row and a column; gives the cell where both are known.
  light(view, g, row, column) {
    const { m, rows, columns } = this;
    g.strokeStyle = view.colours.text;
    g.lineWidth = 1;
    if (row !== null) g.strokeRect(m.x - 1, m.y + row * m.h - 1, columns * m.w + 1, m.h + 1);
    if (column !== null) g.strokeRect(m.x + column * m.w - 1, m.y - 1, m.w + 1, rows * m.h + 1);
    return row === null || column === null ? [] : [[row, column]];
  }
}

class Tiles extends Area {
  constructor(m, theme) { super(m, theme, m.labels.length, m.labels[0].length); }
  says(r, c) { return this.m.labels[r][c] === null ? null
    : `${this.m.says[r][c]}${this.m.wrong[r][c] ? "; in the wrong place" : ""}`; }
  spoken(r, c) { return [[this.row(r), this.column(c)].filter(Boolean).join(", "), this.says(r, c) ?? "empty"]
    .filter(Boolean).join(": "); }
  cell(r, c) { return `${this.m.labels[r][c] ?? ""}${this.m.wrong[r][c] ? " (wrong)" : ""}`; }
  gist(cells) { // kinds of cells, where they are no single things with an address, and columns have names
    const kinds = new Map(), wrong = cells.filter(([, r, c]) => this.m.wrong[r][c]);
    for (const [name, r, c] of cells) {
      const says = this.m.says[r][c], label = this.m.labels[r][c];
      if (name && label !== null && !says.startsWith(`${label},`)) kinds.set(says, [...(kinds.get(says) ?? []), name]);
    }
    const parts = [...kinds].map(([says, names]) => `${says}: ${spans(names)}`);
    if (wrong.length) parts.push(`in the wrong place: ${wrong.map(([, r, c]) => this.m.labels[r][c]).join(", ")}`);
    return parts.join("; ");
  }
  // The cells of a link.
  linked(link) { return this.m.links.flatMap((row, r) => row.flatMap((l, c) => (l === link ? [[r, c]] : []))); }
  // Copied tiles fly from where they are in the tiles before.
  draw(view, g, before) {
    const { m, theme } = this, flies = m.copied && view.fly && view.way < 1, homes = new Map();
    if (flies) before.m.links.forEach((row, r) => row.forEach((link, c) => homes.set(link, before.box(r, c))));
    m.labels.forEach((row, r) => row.forEach((text, c) => {
      if (text === null) return;
      let [x, y, w, h] = this.box(r, c);
      if (flies) [x, y] = mix(homes.get(m.links[r][c]).slice(0, 2), [x, y], view.way);
      const head = m.heads[r][c], fill = head >= 0 ? theme.heads[head % theme.heads.length] : theme.tile;
      g.fillStyle = fill;
      g.fillRect(x, y, w, h);
      if (m.wrong[r][c]) {
        g.strokeStyle = theme.wrong;
        g.lineWidth = 1.6;
        g.setLineDash([3, 2.4]);
        g.strokeRect(x + 0.8, y + 0.8, w - 1.6, h - 1.6);
        g.setLineDash([]);
      }
      if (m.numbers) view.write(g, text, x + w / 2, y + h / 2, textOn(parse(fill)));
    }));
  }
}

// Queries in column 0, keys in column 1.
class Ribbons extends Area {
  constructor(m, theme) {
    super(m, theme, Math.max(m.rows.length, m.columns.length), 2);
    this.links = linksOf(m, theme.faint);
  }
  box(r, c) {
    const m = this.m;
    return [c ? m.x + m.w + 2 : m.x - m.margin + 2, m.y + r * m.h, m.margin - 4, m.h];
  }
  // What is said of a word hides none of the others.
  beside(r, c) { return [this.box(r, c)[0], this.m.y, this.m.margin, this.rows * this.m.h]; }
  hit(x, y) {
    const m = this.m, r = Math.floor((y - m.y) / m.h), c = Number(x > m.x + m.w / 2), along = (x - m.x) / m.w;
    if (along > 0 && along < 1) {
      const lines = this.links.map(([a, b, weight]) => ({ ...this.ends(a, b), size: weight * (m.h - 2) }));
      const link = this.links[pressed(this.theme.way, lines, along, y)];
      if (link) return [link[c], c];
    }
    return x > m.x - m.margin && x < m.x + m.w + m.margin && this.says(r, c) ? [r, c] : null;
  }
  ends(r, c) { return { a: this.m.y + (r + 0.5) * this.m.h, b: this.m.y + (c + 0.5) * this.m.h }; }
  names(r, c) { return (c ? this.m.columns : this.m.rows)[r]; }
  says(r, c) {
    const word = this.names(r, c), others = c ? this.m.rows : this.m.columns;
    if (word === undefined) return null;
    return `${word} ${c ? "←" : "→"} ${this.strongest(r, c, others)}`;
  }
  strongest(r, c, others) {
    return this.links.filter((link) => link[c] === r).slice(-4).reverse()
      .map((l) => `${others[l[1 - c]]} ${number(l[2], 2)}`).join(", ") || "no ribbon here";
  }
  spoken(r, c) {
    const { rows, columns } = this.told;
    if (this.says(r, c) === null) return "empty";
    return c ? `key ${columns[r]} gives to: ${this.strongest(r, c, rows)}`
      : `query ${rows[r]} takes from: ${this.strongest(r, c, columns)}`;
  }
  spokenRow(r, c) { return this.spoken(r, c); }
  spokenColumn(c) { return `${["queries", "keys"][c]}: ${(c ? this.told.columns : this.told.rows).join(", ")}`; }
  table(text) { return new Heatmap({ ...this.m, shape: [this.m.rows.length, this.m.columns.length], decimals: 2 })
    .table(text); }
  pair(r, c) { return c ? [null, r] : [r, null]; }
  draw(view, g) {
    const { m } = this, [near, far] = this.theme.ribbon, [row, column] = view.looksAt(this) ?? [m.row, null];
    g.strokeStyle = m.colour;
    for (const [r, c, weight] of this.links) {
      const { a, b } = this.ends(r, c);
      g.globalAlpha = (row ?? r) === r && (column ?? c) === c ? near : far;
      g.lineWidth = weight * (m.h - 2);
      g.beginPath();
      for (const point of curve(this.theme.way, m.x, m.x + m.w, a, b)) g.lineTo(...point);
      g.stroke();
    }
    g.globalAlpha = 1;
  }
  light(view, g, row, column) { return [[row, 0], [column, 1]].filter(([word]) => word !== null); }
}

// Bars or dots in a row, each with its own box and what it says; some belong to lines, or to series.
export class Items extends Area {
  constructor(list, theme, title) {
    super(list, theme, 1, list.length);
    this.called = title;
    const all = list.map(({ says }) => parted(says)), lines = / at [^,]* = /.test(all[0][0]);
    const pairs = all.map(([where]) =>
      where.match(lines ? /^(?<of>.*) at (?<at>.*)$/ : /^(?<at>.*), (?<of>.*)$/)?.groups);
    this.lines = lines || (pairs.every(Boolean) && new Set(pairs.map(({ of }) => of)).size > 1);
    this.parts = all.map(([at, value], i) => (this.lines ? { ...pairs[i], value } : { of: "value", at, value }));
  }
  get title() { return this.called; }
  row(r, c) { return this.lines ? this.parts[c].of : this.title; }
  column(c) { return this.parts[c].at; }
  cell(r, c) { return this.parts[c].value; }
  spoken(r, c) { return this.says(r, c); }
  some(name, kept) { return this.parts.flatMap((part, k) => (kept(part) ? [[part[name], 0, k]] : [])); }
  across(r, c) { return this.some("at", ({ of }) => of === this.parts[c].of); }
  down(c) { return this.some("of", ({ at }) => at === this.parts[c].at); }
  table() {
    const set = (name) => [...new Set(this.parts.map((part) => part[name]))], columns = set("of");
    const values = new Map(this.parts.map(({ of, at, value }) => [`${of}\n${at}`, value]));
    return { title: this.title, head: ["", ...columns],
      rows: set("at").map((at) => [at, ...columns.map((of) => values.get(`${of}\n${at}`) ?? "")]) };
  }
  box(r, c) { return this.m[c].box; }
  hit(x, y, reach = 0) { // the nearest one
    const far = this.m.map(({ box: [a, b, w, h] }) => (
      [Math.max(0, a - x, x - a - w, b - y, y - b - h), Math.hypot(a + w / 2 - x, b + h / 2 - y)]));
    const [c] = [...far.keys()].sort((i, j) => far[i][0] - far[j][0] || far[i][1] - far[j][1]);
    return far[c][0] <= reach ? [0, c] : null;
  }
  says(r, c) { return this.m[c].says; }
}

// A table of words and numbers, made of its texts: [row, column, text]; row −1 is its header. Keys reach it alone.
export class Words extends Area {
  constructor(marks, theme, title) {
    const rows = Math.max(...marks.map((m) => m.row)) + 1, columns = Math.max(...marks.map((m) => m.column)) + 1;
    super({ rows: [], columns: [], title }, theme, rows, columns - 1);
    this.at = Array.from({ length: rows + 1 }, () => []);
    for (const mark of marks) this.at[mark.row + 1][mark.column] = mark;
    this.m.rows = this.at.slice(1).map(([first]) => first.text);
    this.m.columns = range(columns - 1).map((c) => this.at[0][c + 1]?.text ?? "");
    this.m.row_name = this.at[0][0]?.text ?? "";
  }
  row(r) { return this.m.rows[r]; }
  box(r, c) { const { x, y, text } = this.at[r + 1][c + 1] ?? this.at[r + 1][0];
    return [x - 4, y - 10, this.theme.letter * text.length + 8, 19]; }
  hit() { return null; }
  says(r, c) { return this.spoken(r, c); }
  cell(r, c) { return this.at[r + 1][c + 1]?.text ?? ""; }
}

export const AREAS = { heatmap: Heatmap, tiles: Tiles, ribbons: Ribbons };

// The area of a mark that has cells.
export const areaOf = (mark, theme) => AREAS[mark.kind] && new AREAS[mark.kind](mark, theme);

// Where the arrows of a walk begin and end.
export function cornersOf({ x, y, unit, steps }) {
  const corners = [[x, y]];
  for (let i = 0; i < steps.length; i += 2) {
    const [a, b] = corners.at(-1);
    corners.push([a + steps[i] * unit, b - steps[i + 1] * unit]);
  }
  return corners;
}

// Where the number of each arrow stands, [x, y, i], as mha_course.pictures.walk says.
export function numbersOf(corners, level) {
  const arrows = corners.slice(1).map((end, i) => [...corners[i], ...end]),
    lines = [[...corners[0], ...corners.at(-1)], ...arrows], length = ([a, b, c, d]) => Math.hypot(c - a, d - b);
  const between = (x, y, [a, b, c, d]) => {
    const share = Math.min(1, Math.max(0, ((x - a) * (c - a) + (y - b) * (d - b)) / (length([a, b, c, d]) ** 2 || 1)));
    return Math.hypot(x - a - share * (c - a), y - b - share * (d - b));
  };
  const around = (x, y) =>
    [11, 15, 20].flatMap((size) => range(12)
      .map((turn) => [x + size * Math.cos(turn * Math.PI / 6), y + size * Math.sin(turn * Math.PI / 6)]));
  const some = [...arrows.entries()].filter(([, line]) => length(line) >= 1), short = ([, line]) => length(line) < 24;
  return some.sort((one, other) => short(one) - short(other)).map(([i, line]) => {
    const [a, b, c, d] = line, [x, y] = [(a + c) / 2, (b + d) / 2], beside = (y > level ? -11 : 11) / length(line);
    const spots = short([i, line]) ? around(x, y) : [[x + (d - b) * beside, y - (c - a) * beside]];
    const free = spots.map(([u, v]) => Math.min(12, ...lines.map((other) => between(u, v, other)))),
      at = spots[free.indexOf(Math.max(...free))];
    lines.push([at[0] - 6, at[1], at[0] + 6, at[1]]); // no other number comes here
    return [...at, i];
  });
}
