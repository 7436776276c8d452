// Draws the marks of mha_course.pictures.marks on a canvas: crisp, in the page's own colours, readable by pointer
// and by keyboard.

import { AREAS, areaOf, cornersOf, heard, Items, numbersOf, Words } from "./areas.js";
import { colours, mapOf, parse } from "./colours.js";
import { Cut } from "./cut.js";
import { Flow } from "./flow.js";
import { enters, frame } from "./frame.js";
import { FRAME, mix, MOTION, origins, rests, still } from "./motion.js";
import { number, sum } from "./numbers.js";
import { savers } from "./save.js";
import { fillTables, tablesOf } from "./tables.js";
import { hush, play } from "./tones.js";
import { Writes } from "./writes.js";

const LEAST = 0.86; // of its width: a phone of 320 pixels has a picture whole, in letters of 11
const NEAR = 5; // pixels beside a dot or a bar that still choose it: a finger needs 24
let views = 0;

export class View {
  // `choose(key, position)` moves a control, where a panel stands for one of its positions.
  constructor(el, theme, choose = () => {}) {
    this.theme = theme;
    this.el = el;
    this.choose = choose;
    el.classList.add("mha-view");
    const id = `mha-keys-${views++}`;
    el.innerHTML = frame(id, theme.scale);
    const $ = (s) => el.querySelector(s);
    [this.range, this.head, this.stage, this.canvas, this.reading, this.said, this.spot] =
      ["range", "head", "stage", "stage canvas", "reading", "said", "spot"].map((name) => $(`.mha-${name}`));
    [this.alert, this.caption, this.details, this.tables] =
      [$(".mha-alert"), $(".mha-caption"), $("details"), $(".mha-tables")];
    this.ownRange = $("input");
    $(".mha-more").append(savers(this));
    this.context = this.canvas.getContext("2d");
    this.cursor = this.pinned = null;
    this.tallest = 0;
    this.unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16; // the reader's size of text
    this.drawn = [];
    this.maps = {};
    this.ownRange.addEventListener("change", () => this.draw());
    this.details.addEventListener("toggle", () => this.tell());
    // what has the focus is not to hide below the bar, however high that is now
    this.over = new ResizeObserver(([{ target }]) =>
      el.style.setProperty("--mha-over",
        `${getComputedStyle(target).position === "sticky" ? target.offsetHeight : 0}px`));
    this.canvas.addEventListener("pointermove", (e) => this.point(e));
    this.canvas.addEventListener("pointerleave", () => this.move(this.pinned));
    this.canvas.addEventListener("click", (e) => { if (!this.flow) { this.point(e); this.press(); } });
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("blur", () => this.leave(this.pinned));
    this.canvas.addEventListener("focus", () => {
      if (!this.canvas.matches(":focus-visible") || !this.fields?.length) return;
      this.told = null;
      for (const at of [this.left, [0, this.fields[0].m.row ?? 0, 0]]) if (!this.cursor) this.move(at); // where one was
      this.tellCell(1500); // after its name
    });
    this.again = () => requestAnimationFrame(() => { this.colours = null; this.draw(); });
    this.watch = new MutationObserver(this.again);
    for (const node of [document.body, document.documentElement])
      this.watch.observe(node,
        { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class", "data-theme"] });
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.again);
    this.signs = matchMedia("print, (monochrome), (prefers-contrast: more)"); // where what is below zero is struck
    this.printed = () => { this.colours = null; this.draw(); }; // at once: paper does not wait for a frame
    this.signs.addEventListener("change", this.printed);
    this.canvas.mha = this; // what was drawn, for tests
  }

  remove() {
    this.watch.disconnect();
    this.over.disconnect();
    clearTimeout(this.due);
    this.scheme.removeEventListener("change", this.again);
    this.signs.removeEventListener("change", this.printed);
  }

  // `scene` as `fill` makes it.
  show(scene) {
    this.readColours(); // before anything changes: to read them then lays out the page once more
    if (!this.scene) for (const enter of this.el.querySelectorAll(".mha-enter")) enter.textContent = enters(scene);
    if (scene.cut) scene = (this.cut ??= new Cut(this)).filled(scene);
    if (scene.writes) scene = (this.writes ??= new Writes(this)).filled(scene);
    const copies = (marks) => marks?.some((m) => m.copied);
    const before = still.matches || !this.shown || this.resized ? null : origins(this.shown, scene.marks);
    this.resized = false;
    this.fly = copies(scene.marks) && !copies(this.shown);
    this.before = before && (this.fly || !rests(before, scene.marks)) ? before : null;
    this.started = performance.now() - FRAME;
    this.scene = scene;
    const [i, ...kept] = this.pinned ?? [], named = this.pinned && this.fields[i].names(...kept);
    [this.fields, this.areas] = [[], []]; // what can be pointed at, and with it the boxes of a key
    const items = new Map(), texts = new Map(),
      put = (map, key, thing) => map.set(key, [...(map.get(key) ?? []), thing]);
    for (const mark of scene.marks) {
      const { kind, says, x, y, width, height, panel } = mark;
      const area = areaOf(mark, this.theme);
      if (area) this.areas.push(area);
      if (area && !mark.key) this.fields.push(area);
      if (["rect", "dot"].includes(kind) && says) {
        const box = kind === "rect" ? [x, y - 6, width, height + 6] : [x - 7, y - 7, 14, 14];
        put(items, panel, { box, says });
      }
      if (kind === "text" && "row" in mark) put(texts, panel, mark);
      if (kind === "arrows") items.set(mark, Object.assign(cornersOf(mark).slice(1).map(([a, b], i) => (
        { box: [a - 7, b - 7, 14, 14], says: this.step(i, mark.steps[2 * i], mark.steps[2 * i + 1]) })),
          { picks: mark.picks }));
    }
    for (const [panel, list] of items) this.fields.push(new Items(list, this.theme,
      panel.title ?? scene.titles[panel]));
    for (const [panel, marks] of texts) this.fields.push(new Words(marks, this.theme, scene.titles[panel]));
    const titles = this.fields.map(({ title }) => title),
      once = (title) => titles.indexOf(title) === titles.lastIndexOf(title);
    titles.forEach((title, i) =>
      { if (title && !once(title)) this.fields[i].within = titles.slice(0, i)
        .findLast((other) => other && once(other))?.replace(/^scores of /, ""); });
    if (this.pinned && this.fields[i]?.names(...kept) !== named) { // another pair now: nobody has kept that
      if (String(this.cursor) === String(this.pinned)) this.cursor = null;
      this.pinned = null;
    }
    if (scene.flow) (this.flow ??= new Flow(this)).show(scene.flow);
    const maps = scene.marks.filter((m) => m.kind === "heatmap" && m.by_row && !m.mask);
    this.offered = maps.some((m) => !m.numbers);
    if (maps.length) this.range.hidden = false; // then its place stays: nothing jumps
    this.range.style.visibility = this.offered ? "" : "hidden";
    this.canvas.setAttribute("aria-label", heard(scene.alt));
    const was = this.caption.textContent, changed = was !== scene.caption;
    if (changed) this.caption.textContent = scene.caption;
    this.tell(150);
    this.settle();
    this.draw();
    const beside = (this.flow ?? this.cut)?.heard, reads = this.writes?.reads;
    if (was && (changed || beside !== this.beside)) { // not at load; what is new, once a control has come to rest
      const [before, now] = [was, scene.caption].map((text) => text.split(/(?<=[.?!]) /)),
        news = now.filter((one) => !before.includes(one)).join(" ") || (changed && scene.caption);
      this.say([reads !== this.reads && reads, news, beside].filter(Boolean).join(" "), 700);
    }
    Object.assign(this, { beside, reads: reads ?? this.reads });
    this.flow?.follow();
  }

  // When a picture shrinks, its part on the screen keeps its height; what lies below moves up to that.
  settle() {
    if (this.tallest <= this.scene.height + 4) return;
    this.tallest = Math.min(this.tallest, Math.max(0, innerHeight - this.stage.getBoundingClientRect().top)
      / this.unit);
  }

  // The page has another width: the next picture stands at once, labels and marks together.
  resize() {
    this.tallest = 0;
    this.resized = true;
  }

  // So much space for the sentence that the longest one moves nothing below it.
  reserve(sentence) {
    if (!sentence) return;
    const { caption } = this, now = caption.textContent;
    Object.assign(caption, { textContent: sentence }).style.minHeight = "";
    caption.style.minHeight = `${caption.offsetHeight}px`;
    caption.textContent = now;
  }

  fail(sentence) {
    this.alert.textContent = sentence;
    this.stage.classList.toggle("mha-stale", Boolean(sentence));
  }

  // The tables follow once a control has come to rest, and only while they are open.
  tell(rest = 0) {
    clearTimeout(this.filling);
    if (this.details.open && this.scene) this.filling = setTimeout(() => fillTables(this.tables, tablesOf(this)), rest);
  }

  // A sentence for who listens, or what makes it then, after a rest: the last one, and at most one a second.
  say(made, rest = 0) {
    clearTimeout(this.due);
    this.due = setTimeout(() => {
      const sentence = heard(made.call?.() ?? made);
      if (!sentence) return;
      this.spoke = Date.now();
      this.said.textContent = sentence === this.said.textContent ? `${sentence}\u00A0` : sentence;
    }, Math.max(rest, (this.spoke ?? 0) + 1000 - Date.now()));
  }

  // The cell of the cursor, with its place, and with its panel where that is another one.
  tellCell(rest = 0) { this.say(() => (this.cursor && this.canvas.matches(":focus") ? this.ofCell() : ""), rest); }
  ofCell() {
    const [i, r, c] = this.cursor, f = this.fields[i], { rows, columns } = f,
      names = [f.title, `panel ${i + 1} of ${this.fields.length}`];
    const place = f.placed ? []
      : [rows > 1 && columns > 1 ? `row ${r + 1}, column ${c + 1}` : `${r + c + 1} of ${rows * columns}`],
        panel = this.told === f.title + i ? [] : names.filter(Boolean);
    this.told = f.title + i;
    // what to do once
    const cell = (this.flow ? this.flow.heard : f.spoken(r, c)).split(panel.length ? "\n" : /[;:] press/)[0],
      follows = this.flow?.follows ?? [];
    if (this.flow) this.flow.follows = [];
    return [...panel, [cell, ...follows, ...place].join("; ")].join(", ");
  }

  // A row, a column, a panel and where else this pair is large, as the keys R, C and P ask for them; T plays a row.
  tellMore(key) {
    const [i, r, c] = this.cursor, f = this.fields[i], { rows, columns } = f,
      of = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;
    if (key === "t" && !f.levels) return this.say("Tones are for maps: this panel is none.");
    if (key === "t") return play([...f.levels(this.byRow && f.m.by_row).subarray(r * columns, (r + 1) * columns)]
      .map((v, k) => (f.blocked?.[r * columns + k] ? null : v / 255)));
    if (key === "r") return this.say(f.spokenRow(r, c));
    if (key === "c") return this.say(f.spokenColumn(c));
    const at = r * columns + c, kind = ({ m }) => String([m.mask, m.limits]), size = (o) => o.values[at];
    const alike = this.fields.filter((o) => f.values && o.values && o.same(f) && kind(o) === kind(f)
      && !o.blocked?.[at]).sort((a, b) => size(b) - size(a)).slice(0, 3);
    const most = alike.length > 1
      ? `; ${f.spoken(r, c).split(": ")[0]} is largest in ${alike.map((o) => `${o.title}, ${o.cell(r, c)}`)
        .join("; ")}` : "";
    this.say(`${[f.title, `panel ${i + 1} of ${this.fields.length}`].filter(Boolean).join(", ")}: ${rows > 1
      ? `${of(rows, "row")}, ` : ""}${of(columns, "column")}${most}`);
  }

  // Draws once in the next frame, however often it is asked for, or in a later one if a move has drawn in it.
  later() {
    this.asked ??= requestAnimationFrame((begun) => {
      this.asked = null;
      if (this.drew >= begun) this.later();
      else this.draw();
    });
  }

  // The page's colours, for what is drawn here and for what stands around it.
  readColours() {
    if (this.colours || !this.el.isConnected) return;
    this.colours = colours(this.el);
    this.inks = {};
    this.font = getComputedStyle(this.el).fontFamily || "sans-serif";
    this.el.classList.toggle("mha-dark", this.colours.dark);
    const root = this.el.closest(".mha-explorer") ?? this.el;
    for (const [name, value] of [["text", this.colours.text], ["focus", this.colours.focus],
      ["page", `rgb(${this.colours.page})`]])
      root.style.setProperty(`--mha-${name}`, value);
  }

  draw() {
    const { scene, canvas, context: g } = this;
    if (!scene || !this.el.isConnected) return;
    this.drew = performance.now();
    this.readColours();
    if (this.writes && !this.writes.more.open) return; // its map is folded away, and drawn once that opens
    const { unit } = this, dpr = unit * (this.density ?? Math.max(1, window.devicePixelRatio || 1));
    const [width, height] = [scene.width + 4, scene.height + 4];
    const [w, h] = [Math.round(width * dpr), Math.round(height * dpr)];
    if (canvas.width !== w || canvas.height !== h) {
      [canvas.width, canvas.height] = [w, h];
      canvas.style.width = `${width * unit}px`;
      canvas.style.minWidth = `${LEAST * width * unit}px`; // so narrow it is read as well; then it is scrolled
    }
    if (height > this.tallest) { // asking for widths on every move would lay the page out once more
      this.tallest = height;
      const full = width * unit;
      this.stage.style.minHeight =
        `${height * unit * Math.min(1, Math.max(LEAST, (this.el.clientWidth || full) / full))}px`;
    }
    g.setTransform(dpr, 0, 0, dpr, 2 * dpr, 2 * dpr);
    g.clearRect(-2, -2, width, height);
    this.drawn = [];
    const share = this.before || this.flow?.fresh.length ? Math.min(1, (this.drew - this.started) / MOTION) : 1;
    this.way = share * (2 - share);
    this.shown = this.before && share < 1 ? scene.marks.map((mark, i) => mix(this.before[i], mark, this.way))
      : scene.marks;
    if (share < 1) this.later();
    let n = 0;
    for (const mark of this.shown) {
      const area = AREAS[mark.kind] && this.areas[n++];
      g.globalAlpha = area && this.flow ? this.flow.alpha(area) : 1;
      if (area) area.draw(this, g, this.areas[n - 2]);
      else this[mark.kind](g, mark);
    }
    this.mark(g);
    this.read();
  }

  // whether the reader lets each row's colours run up to its own largest
  get byRow() { return this.offered && this.ownRange.checked; }

  write(g, text, x, y, colour, align = "center", bold = false, size = this.theme.size) {
    const { down, size: share } = this.theme.scripts, pieces = this.pieces(text);
    const font = (sign) => { g.font = `${bold ? "600 " : ""}${sign ? share * size : size}px ${this.font}`; };
    const widths = pieces.length > 1
      ? pieces.map(([piece, sign]) => { font(sign); return g.measureText(piece).width; }) : [0];
    x -= { left: 0, center: 0.5, right: 1 }[align] * sum(widths);
    g.fillStyle = colour;
    g.textAlign = pieces.length > 1 ? "left" : align;
    g.textBaseline = "middle";
    pieces.forEach(([piece, sign], i) => {
      font(sign);
      g.fillText(piece, x, y + 0.5 + (down[sign] ?? 0) * size);
      x += widths[i];
    });
    this.drawn.push(text);
  }

  // Pieces of a text, each with the sign that raises or lowers it, or "": mha_course.base.prose.scripts.
  pieces(text) {
    const { split, code } = this.theme.scripts;
    if (!/[_^]/.test(text) || new RegExp(code).test(text)) return [[text, ""]];
    const parts = text.split(new RegExp(split));
    return parts.flatMap((part, i) => (part && i % 3 !== 1 ? [[part, i % 3 ? parts[i - 1] : ""]] : []));
  }

  text(g, { x, y, text, size, align, turned, bold }) {
    if (!turned) return this.write(g, text, x, y, this.colours.text, align, bold, size);
    g.save();
    g.translate(x, y);
    g.rotate(-Math.PI / 2);
    this.write(g, text, 0, 0, this.colours.text, align, bold, size);
    g.restore();
  }

  // A colour, lighter on a dark page; of marks those of roles, which are dark enough for text.
  lighter(colour) { return this.colours.dark ? `rgb(${parse(colour).map((v) => Math.round(v + (255 - v) * 0.4))})`
    : colour; }
  shade(colour) { return Object.values(this.theme.roles).includes(colour) ? this.lighter(colour) : colour; }

  rect(g, { x, y, width: w, height: h, colour, hollow }) {
    g.fillStyle = g.strokeStyle = this.shade(colour);
    g.lineWidth = 3;
    if (hollow) g.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3);
    else g.fillRect(x, y, w, h);
    if (this.signs.matches && colour === this.theme.maps.diverging[1]) this.strike(g, x, y, w, h);
  }

  path(g, { points, colour, dashed, width, filled }) {
    g.strokeStyle = this.shade(colour) || (dashed ? this.colours.hatch : this.colours.faint);
    g.lineWidth = width;
    g.setLineDash(dashed ? [4 * width, 3 * width] : []);
    g.lineDashOffset = dashed ? 3.5 * width * (dashed - 1) : 0; // the second of two on each other fills the gaps
    g.lineJoin = "round";
    g.beginPath();
    for (let i = 0; i < points.length; i += 2) g.lineTo(points[i], points[i + 1]);
    if (filled) { g.fillStyle = g.strokeStyle; g.fill(); }
    else g.stroke();
    g.setLineDash([]);
  }

  dot(g, { x, y, colour, radius }) {
    if (!radius) return;
    g.fillStyle = colour;
    g.beginPath();
    g.arc(x, y, radius, 0, 7);
    g.fill();
  }

  step(i, along, up) {
    return `head ${i}: ${number(along, 2)} along, ${number(Math.abs(up), 2)} ${up >= 0 ? "up" : "down"}`; }

  arrows(g, mark) { // the dashed sum, then each arrow from the tip of the one before
    const corners = cornersOf(mark), { heads, ink } = this.theme;
    this.arrow(g, corners[0], corners.at(-1), ink, true);
    for (let i = 0; i + 1 < corners.length; i++) this.arrow(g, corners[i], corners[i + 1], heads[i % heads.length],
      false);
    for (const [x, y, i] of numbersOf(corners, mark.y)) this.write(g, String(i), x, y, this.colours.text);
  }

  arrow(g, [x0, y0], [x, y], colour, dashed) {
    const far = Math.hypot(x - x0, y - y0), size = Math.min(7, far) / (far || 1),
      [a, b] = [(x0 - x) * size, (y0 - y) * size];
    const wing = (c, s) => [x + a * c - b * s, y + a * s + b * c];
    this.path(g, { points: [x0, y0, x, y], colour, dashed, width: 2.5 });
    this.path(g, { points: [...wing(0.87, 0.5), x, y, ...wing(0.87, -0.5)], colour, dashed: false, width: 2.5 });
  }

  ink(map, level) { return (this.inks[map] ??= [])[level] ??= this.mixed(map, level); }
  mixed(map, level) {
    // on a dark page the strong end is lighter, so that its whole range can be seen
    const m = (this.maps[map] ??= mapOf(this.theme.maps[map], this.theme.ink))[level], share = m[3] / 255;
    const glow = this.colours.dark ? 0.35 * share : 0;
    const parts = [...m.slice(0, 3).map((v) => Math.round(v + (255 - v) * glow)), share];
    return { parts, css: `rgba(${parts})` };
  }

  bar(g, { x, y, width: w, height: h, colours, end, by_row: byRow }) {
    if (this.byRow && byRow) { // the longer label shortens the bar: nothing else moves
      g.font = `${this.theme.size}px ${this.font}`;
      w -= g.measureText(byRow).width - g.measureText(end).width;
      end = byRow;
    }
    const ramp = g.createLinearGradient(x, y, x + w, y);
    for (let i = 0; i < 64; i++) ramp.addColorStop(i / 63, this.ink(colours, i * 4).css);
    g.fillStyle = ramp;
    g.fillRect(x, y, w, h);
    if (this.signs.matches && this.theme.maps[colours].length > 1) this.strike(g, x, y, w / 2, h);
    this.write(g, end, x + w + 8, y + h / 2, this.colours.text, "left");
  }

  // What is below zero, where colours may be grey or hard to tell.
  strike(g, x, y, w, h) {
    if (h < this.theme.struck) return;
    g.fillStyle = `rgb(${this.colours.page})`;
    g.fillRect(x, y + (h - 1) / 2, w, 1);
  }

  hatch(g) {
    if (this.hatched?.colour !== this.colours.hatch) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 12;
      const t = tile.getContext("2d");
      t.strokeStyle = this.colours.hatch;
      t.lineWidth = 1.6;
      for (const d of [-12, 0, 12]) { t.moveTo(d - 1, 13); t.lineTo(d + 13, -1); }
      t.stroke();
      this.hatched = { colour: this.colours.hatch, pattern: g.createPattern(tile, "repeat") };
      this.hatched.pattern.setTransform(new DOMMatrix().scale(0.5));
    }
    return this.hatched.pattern;
  }

  // The row and the column of a map that the cursor, perhaps on an equal map, points at.
  looksAt(f) {
    const on = this.cursor && this.fields[this.cursor[0]], [, r, c] = this.cursor ?? [];
    return on?.same(f) && r < on.rows ? on.pair(r, c) : null;
  }

  at(x, y) {
    for (const reach of [0, NEAR]) for (let i = 0; i < this.fields.length; i++) {
      const cell = this.fields[i].hit(x, y, reach);
      if (cell) return [i, ...cell];
    }
    return null;
  }

  point(e) {
    if (!this.scene) return;
    const box = this.canvas.getBoundingClientRect();
    const scale = (this.scene.width + 4) / box.width;
    const cursor = this.at((e.clientX - box.left) * scale - 2, (e.clientY - box.top) * scale - 2);
    this.canvas.style.cursor = cursor && (this.cut || this.writes || this.fields[cursor[0]].m.picks) ? "pointer" : "";
    this.move(cursor ?? this.pinned);
  }

  // A click, a tap or Enter: a panel that stands for a position of a control moves it there,
  // any other cell is kept until it is pressed again.
  press() {
    if (!this.cursor) return;
    const [i, ...cell] = this.cursor;
    if (this.cut) return this.cut.press(this.fields[i], ...cell);
    if (this.writes) return this.writes.show([...cell].reverse());
    const { m: { picks, rows } } = this.fields[i];
    if (picks?.[1] === null) return this.choose(rows ? rows[cell[0]].replace(" ", "_") : `${picks[0]}_${cell[1]}`);
    if (picks) return this.choose(...picks);
    this.pinned = String(this.pinned) === String(this.cursor) ? null : this.cursor;
    this.say(`${this.pinned ? "kept" : "let go"}: ${this.fields[i].spoken(...cell)}`);
    this.move(this.pinned);
    this.draw();
  }

  // The place is remembered for who comes back to it.
  leave(cursor) {
    hush();
    this.left = this.cursor ?? this.left;
    this.move(cursor);
  }

  move(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    this.draw();
  }

  key(e) {
    if (this.flow?.key(e)) { this.tellCell(); return e.preventDefault(); }
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    const letter = this.cursor && /^[rcpt]$/i.test(e.key);
    const known = step || letter || ["Home", "End", "PageUp", "PageDown", "Escape", "Enter", " "].includes(e.key);
    if (!known || e.ctrlKey || e.metaKey || e.altKey || !this.fields?.length) return;
    e.preventDefault();
    e.stopPropagation();
    if (e.key === "Escape") {
      if (this.pinned) this.say("let go");
      this.pinned = this.told = null;
      return this.leave(null);
    }
    if (e.key === "Enter" || e.key === " ") return this.press();
    if (letter) return this.tellMore(e.key.toLowerCase());
    let [i, r, c] = [this.cursor, this.left].find((at) => this.fields[at?.[0]]) ?? [0, 0, -1];
    const count = this.fields.length, turn = (by) => { i = (i + by + count) % count; };
    if (e.key === "PageDown") turn(1);
    else if (e.key === "PageUp") turn(-1);
    else if (e.key === "Home") c = 0;
    else if (e.key === "End") c = this.fields[i].columns - 1;
    else {
      const f = this.fields[i];
      [r, c] = [r + step[0], c + step[1]];
      if (c >= f.columns) { turn(1); c = 0; }
      else if (c < 0) { turn(-1); c = this.fields[i].columns - 1; }
      else if (r >= f.rows) { turn(1); r = 0; }
      else if (r < 0) { turn(-1); r = this.fields[i].rows - 1; }
    }
    const f = this.fields[i];
    this.move([i, Math.min(Math.max(r, 0), f.rows - 1), Math.min(Math.max(c, 0), f.columns - 1)]);
    this.follow(f.box(...this.cursor.slice(1)));
    this.tellCell();
  }

  // A box of the picture comes into sight, within a picture that is wider than its place, and below the bar.
  follow([x, y, w, h]) {
    const { spot, canvas } = this, scale = canvas.clientWidth / (this.scene.width + 4), px = (v) => `${v * scale}px`;
    Object.assign(spot.style,
      { left: px(x), top: px(y), width: px(w + 4), height: px(h + 4),
        scrollMargin: `var(--mha-over) 0 ${this.flow?.sticks ?? 0}px` });
    spot.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // What belongs to the cursor: cells of one link, the same cell of equal maps, its row and column.
  mark(g) {
    this.lit = [];
    const fits = ([i, r, c]) => this.fields[i] && r < this.fields[i].rows && c < this.fields[i].columns;
    if (this.pinned && !fits(this.pinned)) this.pinned = null;
    if (this.cursor && !fits(this.cursor)) this.cursor = this.pinned;
    if (this.flow) return this.flow.mark(g);
    if (!this.cursor) return;
    const [i, r, c] = this.cursor, f = this.fields[i];
    const link = f.m.links?.[r][c] ?? -1;
    this.fields.forEach((other, k) => {
      const cells = link >= 0 ? other.linked?.(link) : f.same(other) && other.light(this, g, ...f.pair(r, c));
      for (const cell of cells || []) if (k !== i || link >= 0) this.lit.push([k, ...cell]);
    });
    for (const [k, y, x] of this.lit) this.frame(g, this.fields[k].box(y, x), 2);
    this.frame(g, f.box(r, c), this.pinned ? 3 : 2);
  }

  frame(g, box, width) { // in the colour of text with the page around it: seen on every cell
    for (const [wide, colour] of [[width + 2, `rgb(${this.colours.page})`], [width, this.colours.text]]) {
      g.lineWidth = wide;
      g.strokeStyle = colour;
      g.strokeRect(...box);
    }
  }

  read() {
    const { reading, cursor } = this;
    if (this.flow) return this.flow.read();
    if (this.cut) return this.cut.read();
    if (!cursor) { reading.style.opacity = 0; reading.textContent = ""; return; }
    const [i, r, c] = cursor, f = this.fields[i], words = f.says(r, c) ?? "", { picks, rows } = f.m;
    const press = picks?.[1] === null && (rows?.[r] ?? picks[0]).startsWith(picks[0])
      ? "; press to switch it on or off" : "";
    const title = f.pair && !press && this.fields.length > 1 && f.m.title ? `${f.m.title}: ` : "";
    if (reading.textContent !== title + words + press) reading.textContent = title + words + press;
    reading.style.opacity = words ? 1 : 0;
    const scale = this.canvas.clientWidth / (this.scene.width + 4), [x, y, w, h] = f.beside?.(r, c) ?? f.box(r, c);
    const left = Math.min((x + w / 2) * scale - this.stage.scrollLeft,
      this.stage.clientWidth - reading.offsetWidth - 4);
    const above = y * scale - reading.offsetHeight - 8,
      top = this.stage.offsetTop + (above >= 0 ? above : (y + h) * scale + 10);
    reading.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }
}
