// Draws the marks of mha_lesson.pictures.layout on a canvas: crisp, in the page's own colours, readable by
// pointer and by keyboard. In a notebook it is an anywidget; a saved page calls `mount`.

const STYLE = `
.mha-view{position:relative;max-width:100%;font-size:13px;line-height:1.5;color:var(--mha-text)}
.mha-view canvas{display:block;max-width:100%;height:auto;border-radius:2px}
.mha-view canvas:focus-visible{outline:2px solid var(--mha-focus);outline-offset:3px}
.mha-view .mha-stage{position:relative;max-width:100%}
.mha-view .mha-reading{position:absolute;left:0;top:0;pointer-events:none;padding:2px 8px;border-radius:4px;
 background:var(--mha-text);color:var(--mha-page);white-space:nowrap;font-weight:600;z-index:2;opacity:0}
.mha-view p{margin:.5em 0}
.mha-view .mha-alert{border-left:4px solid #CF5A08;padding:.2em .7em;font-weight:600}
.mha-view .mha-alert:empty{display:none}
.mha-view .mha-caption{min-height:3em}
.mha-view .mha-stale canvas{opacity:.35}
.mha-view summary{cursor:pointer}
.mha-view label{display:flex;gap:.5em;align-items:center;cursor:pointer}
.mha-view table{border-collapse:collapse;margin:.3em 0}
.mha-view th,.mha-view td{text-align:left;padding:1px 14px 1px 0;font-weight:normal;color:inherit;background:none}
.mha-view .mha-more{display:flex;min-height:26px;gap:1.6em;align-items:flex-start;flex-wrap:wrap}
.mha-controls{display:flex;flex-wrap:wrap;gap:.3em 1.6em;margin:.4em 0;color:var(--mha-text)}
.mha-controls label{display:flex;gap:.6em;align-items:center;min-height:26px;flex-wrap:wrap}
.mha-controls label[hidden]{display:none}
.mha-controls :is(input,select){min-height:24px;max-width:100%;font:inherit}
.mha-controls input[type=checkbox]{width:20px}
`;

// ---- numbers as mha_lesson.pictures.panels.number writes them ---------------------------------------------

export function number(value, decimals = null) {
  if (Number.isNaN(value)) return "NaN";
  let minus = value < 0 ? "−" : "", size = Math.abs(value);
  if (size === Infinity) return minus + "∞";
  if (size >= 1e15) return minus + size.toExponential(1).replace("e+", "e");
  const whole = size === Math.trunc(size);
  if (size >= 10000 || (size >= 999.5 && !whole)) {
    for (const unit of ["", "k", "M", "G", "T"]) {
      const text = size.toFixed(size < 99.95 && unit ? 1 : 0);
      if (Number(text) < 1000 || unit === "T") {
        return minus + (Number(text) === size ? text.replace(/\.0$/, "") : text) + unit;
      }
      size /= 1000;
    }
  }
  if (decimals === null) {
    if (whole) return minus + String(size);
    if (size < 0.001) {
      const [m, e] = size.toExponential(1).split("e-");
      return `${minus}${m}e−${e}`;
    }
    decimals = size < 0.1 ? 3 : size < 10 ? 2 : size < 99.95 ? 1 : 0;
  }
  const text = size.toFixed(decimals);
  if (Number(text) === 0) minus = "";
  return minus + (text.startsWith("0.") ? text.slice(1) : text);
}

// ---- colours --------------------------------------------------------------------------------------

const parse = (css) => {
  const m = css.match(/[\d.]+/g);
  if (css[0] === "#") return [1, 3, 5].map((i) => parseInt(css.slice(i, i + 2), 16));
  return m ? m.slice(0, 4).map(Number) : [0, 0, 0, 0];
};
const luminance = (c) => {
  const [r, g, b] = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const textOn = (c) => (luminance(c.slice(0, 3)) > 0.179 ? "#000000" : "#FFFFFF");

function theme(el) {
  let page = [255, 255, 255];
  for (let at = el; at; at = at.parentElement) {
    const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0.5) { page = c.slice(0, 3); break; }
  }
  const dark = luminance(page) < 0.18;
  return { page, dark, text: dark ? "#E4E4E4" : "#2B2B2B", faint: dark ? "#E4E4E440" : "#2B2B2B33",
           hatch: dark ? "#E4E4E466" : "#2B2B2B66", focus: dark ? "#6FB1F5" : "#1565B8" };
}

// ---- fields: what can be pointed at -----------------------------------------------------------------

const gaps = (index, every) => (every ? 8 * Math.floor(index / every) : 0);

class Field {
  constructor(kind, m, data) {
    this.kind = kind;
    this.m = m;
    if (kind === "heatmap") {
      [this.rows, this.columns] = m.shape;
      this.values = data.subarray(m.values[0], m.values[0] + m.values[1]);
      this.blocked = m.blocked && data.subarray(m.blocked[0], m.blocked[0] + m.blocked[1]);
    } else if (kind === "tiles") {
      [this.rows, this.columns] = [m.labels.length, m.labels[0].length];
    } else {
      [this.rows, this.columns] = [1, m.length];
    }
  }
  box(r, c) {
    const m = this.m;
    if (this.kind === "items") return m[c].box;
    const gap = this.kind === "tiles" ? (m.w >= 8 ? 2 : 0.5) : Math.min(m.w, m.h) >= 8 ? 1 : 0;
    return [m.x + c * m.w + gaps(c, m.break_columns), m.y + r * m.h + gaps(r, m.break_rows),
            m.w - gap, m.h - gap];
  }
  hit(x, y) {
    if (this.kind === "items") {
      const c = this.m.findIndex(({ box: [a, b, w, h] }) => x >= a && x <= a + w && y >= b && y <= b + h);
      return c < 0 ? null : [0, c];
    }
    const m = this.m;
    if (x < m.x || y < m.y) return null;
    const place = (d, size, every) => {
      const block = every ? Math.floor(d / (every * size + 8)) : 0;
      return Math.floor((d - 8 * block) / size);
    };
    const r = place(y - m.y, m.h, m.break_rows), c = place(x - m.x, m.w, m.break_columns);
    return r < this.rows && c < this.columns && this.says(r, c) !== null ? [r, c] : null;
  }
  says(r, c) {
    const m = this.m;
    if (this.kind === "items") return m[c].says;
    if (this.kind === "tiles") return m.labels[r][c] === null ? null : m.says[r][c];
    return `${m.rows[r]} → ${m.columns[c]} = ${this.cell(r, c)}`;
  }
  cell(r, c) {
    const i = r * this.columns + c;
    if (this.m.mask) return this.values[i] ? "True" : "False";
    return this.blocked && this.blocked[i] ? "blocked" : number(this.values[i], this.m.decimals);
  }
  levels(perRow) {
    // where each value lies in its map, 0 to 255: mha_lesson.pictures.panels.shares
    const { m, values, blocked, columns } = this, out = new Uint8Array(values.length);
    let [low, high] = m.limits;
    for (let r = 0; r < this.rows; r++) {
      if (perRow || m.per_row) {
        let top = 0;
        for (let i = r * columns; i < (r + 1) * columns; i++)
          if (!(blocked && blocked[i]) && Number.isFinite(values[i])) top = Math.max(top, Math.abs(values[i]));
        high = top || 1;
        low = m.colours === "sequential" ? 0 : -high;
      }
      for (let i = r * columns; i < (r + 1) * columns; i++) {
        const share = Math.min(1, Math.max(0, (values[i] - low) / (high - low)));
        out[i] = Math.round((Number.isNaN(share) ? 0 : share) * 255);
      }
    }
    return out;
  }
}

// ---- one view ---------------------------------------------------------------------------------------

export class View {
  constructor(el, look) {
    this.look = look;
    this.el = el;
    el.classList.add("mha-view");
    el.innerHTML = `<style>${STYLE}${FLOW_STYLE}</style><p class="mha-alert" role="alert"></p>
      <p class="mha-caption" aria-live="polite"></p><div class="mha-stage"><canvas tabindex="0" role="application"
      aria-roledescription="picture" data-lm-suppress-shortcuts="true"></canvas><div class="mha-reading"
      role="status" aria-live="polite"></div></div><div class="mha-more"><details><summary>Values in words
      </summary><table><tbody></tbody></table></details><label><input type="checkbox" data-lm-suppress-shortcuts="true">
      colours: each row up to its own largest</label></div>`;
    const $ = (s) => el.querySelector(s);
    [this.stage, this.canvas, this.reading] = [$(".mha-stage"), $("canvas"), $(".mha-reading")];
    [this.alert, this.caption, this.details] = [$(".mha-alert"), $(".mha-caption"), $("details")];
    this.ownRange = $("input");
    this.context = this.canvas.getContext("2d");
    this.cursor = null;
    this.tallest = 0;
    this.drawn = [];
    this.ownRange.addEventListener("change", () => this.draw());
    this.details.addEventListener("toggle", () => this.tell());
    this.canvas.addEventListener("pointermove", (e) => this.point(e));
    this.canvas.addEventListener("pointerleave", (e) => { if (e.pointerType === "mouse") this.move(null); });
    this.canvas.addEventListener("pointerdown", (e) => this.tap(e));
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("blur", () => this.move(null));
    this.canvas.addEventListener("focus", () => {
      if (this.canvas.matches(":focus-visible") && !this.cursor && this.fields?.length) this.move([0, 0, 0]);
    });
    this.again = () => requestAnimationFrame(() => { this.colours = null; this.draw(); });
    this.watch = new MutationObserver(this.again);
    for (const node of [document.body, document.documentElement])
      this.watch.observe(node, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class", "data-theme"] });
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.again);
    this.canvas.mha = this; // what was drawn, for tests
  }

  remove() {
    this.watch.disconnect();
    this.scheme.removeEventListener("change", this.again);
  }

  show(scene, data) {
    this.scene = scene;
    this.fields = [];
    const items = new Map();
    for (const mark of scene.marks) {
      const { kind, says, x, y, width, height, panel } = mark;
      if (kind === "heatmap" || kind === "tiles") this.fields.push(new Field(kind, mark, data));
      if ((kind === "rect" || kind === "dot") && says) {
        const box = kind === "rect" ? [x, y - 6, width, height + 6] : [x - 7, y - 7, 14, 14];
        if (!items.has(panel)) items.set(panel, []);
        items.get(panel).push({ box, says });
      }
    }
    for (const list of items.values()) this.fields.push(new Field("items", list, data));
    if (scene.flow) (this.flow ??= new Flow(this)).show(scene.flow, data);
    this.offered = scene.marks.some((m) => m.kind === "heatmap" && m.by_row && !m.numbers);
    this.ownRange.parentElement.style.display = scene.marks.some((m) => m.kind === "heatmap") ? "" : "none";
    this.ownRange.parentElement.style.visibility = this.offered ? "" : "hidden";
    this.details.style.display = scene.text.length ? "" : "none";
    this.canvas.setAttribute("aria-label", scene.alt);
    if (this.caption.textContent !== scene.caption) this.caption.textContent = scene.caption;
    this.tell();
    this.draw();
  }

  fail(sentence) {
    this.alert.textContent = sentence;
    this.stage.classList.toggle("mha-stale", Boolean(sentence));
  }

  tell() {
    if (!this.details.open || !this.scene) return;
    this.details.querySelector("tbody").replaceChildren(...this.scene.text.map((row) => {
      const tr = document.createElement("tr");
      for (const cell of row) tr.appendChild(document.createElement("td")).textContent = cell;
      return tr;
    }));
  }

  draw() {
    const { scene, canvas, context: g } = this;
    if (!scene || !this.el.isConnected) return;
    if (!this.colours) {
      this.colours = theme(this.el);
      this.font = getComputedStyle(this.el).fontFamily || "sans-serif";
      for (const [name, value] of [["text", this.colours.text], ["focus", this.colours.focus], ["page", `rgb(${this.colours.page})`]])
        this.el.style.setProperty(`--mha-${name}`, value);
      (this.el.closest(".mha-explorer") ?? this.el).style.setProperty("--mha-text", this.colours.text);
    }
    const dpr = Math.max(1, window.devicePixelRatio || 1);
    const [width, height] = [scene.width + 4, scene.height + 4];
    const [w, h] = [Math.round(width * dpr), Math.round(height * dpr)];
    if (canvas.width !== w || canvas.height !== h) {
      [canvas.width, canvas.height] = [w, h];
      canvas.style.width = `${width}px`;
    }
    this.tallest = Math.max(this.tallest, height);
    const room = this.el.clientWidth || width;
    this.stage.style.minHeight = `${this.tallest * Math.min(1, room / width)}px`;
    g.setTransform(dpr, 0, 0, dpr, 2 * dpr, 2 * dpr);
    g.clearRect(-2, -2, width, height);
    this.drawn = [];
    let field = 0;
    for (const mark of scene.marks) {
      const cells = mark.kind === "heatmap" || mark.kind === "tiles";
      g.globalAlpha = mark.kind === "heatmap" && this.flow ? this.flow.alpha(this.fields[field]) : 1;
      this[mark.kind](g, cells ? this.fields[field++] : mark);
    }
    this.mark(g);
    this.read();
  }

  // whether the reader lets each row's colours run up to its own largest
  get byRow() { return this.offered && this.ownRange.checked; }

  write(g, text, x, y, size, colour, align = "center", bold = false) {
    g.font = `${bold ? "600 " : ""}${size}px ${this.font}`;
    g.fillStyle = colour;
    g.textAlign = align;
    g.textBaseline = "middle";
    g.fillText(text, x, y + 0.5);
    this.drawn.push(text);
  }

  text(g, { x, y, text, size, align, turned, bold }) {
    if (!turned) return this.write(g, text, x, y, size, this.colours.text, align, bold);
    g.save();
    g.translate(x, y);
    g.rotate(-Math.PI / 2);
    this.write(g, text, 0, 0, size, this.colours.text, align, bold);
    g.restore();
  }

  rect(g, { x, y, width: w, height: h, colour, hollow }) {
    g.fillStyle = g.strokeStyle = colour;
    g.lineWidth = 3;
    if (hollow) g.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3);
    else g.fillRect(x, y, w, h);
  }

  path(g, { points, colour, dashed, width }) {
    g.strokeStyle = colour || (dashed ? this.colours.hatch : this.colours.faint);
    g.lineWidth = width;
    g.setLineDash(dashed ? [4 * width, 3 * width] : []);
    g.lineJoin = "round";
    g.beginPath();
    for (let i = 0; i < points.length; i += 2) g.lineTo(points[i], points[i + 1]);
    g.stroke();
    g.setLineDash([]);
  }

  dot(g, { x, y, colour, radius }) {
    if (!radius) return;
    g.fillStyle = colour;
    g.beginPath();
    g.arc(x, y, radius, 0, 7);
    g.fill();
  }

  ink(map, level) {
    // on a dark page the strong end is lighter, so that the whole range can be told apart
    const m = this.look.maps[map].slice(4 * level, 4 * level + 4), share = m[3] / 255;
    const glow = this.colours.dark ? 0.35 * share : 0;
    return [...m.slice(0, 3).map((v) => Math.round(v + (255 - v) * glow)), share];
  }

  bar(g, { x, y, width: w, height: h, colours, end, by_row: byRow }) {
    if (this.byRow && byRow) { // the longer label takes its room from the bar: nothing else moves
      g.font = `12px ${this.font}`;
      w -= g.measureText(byRow).width - g.measureText(end).width;
      end = byRow;
    }
    const ramp = g.createLinearGradient(x, y, x + w, y);
    for (let i = 0; i < 64; i++) ramp.addColorStop(i / 63, `rgba(${this.ink(colours, i * 4)})`);
    g.fillStyle = ramp;
    g.fillRect(x, y, w, h);
    this.write(g, end, x + w + 8, y + h / 2, 12, this.colours.text, "left");
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

  heatmap(g, f) {
    const levels = f.levels(this.byRow && f.m.by_row);
    const inks = new Map();
    for (let r = 0; r < f.rows; r++) for (let c = 0; c < f.columns; c++) {
      const i = r * f.columns + c, [x, y, w, h] = f.box(r, c);
      if (f.blocked && f.blocked[i]) {
        g.fillStyle = this.hatch(g);
        g.fillRect(x, y, w, h);
        continue;
      }
      const nan = Number.isNaN(f.values[i]), ink = this.ink(f.m.colours, levels[i]);
      if (nan || f.m.mask) {
        g.strokeStyle = this.colours.hatch;
        g.lineWidth = 1;
        g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      } else {
        if (!inks.has(levels[i])) inks.set(levels[i], `rgba(${ink})`);
        g.fillStyle = inks.get(levels[i]);
        g.fillRect(x, y, w, h);
      }
      if (f.m.numbers || (nan && f.m.w >= 24)) {
        const paper = this.colours.page.map((p, k) => p + (ink[k] - p) * (nan ? 0 : ink[3]));
        this.write(g, f.cell(r, c), x + w / 2, y + h / 2, 12, textOn(paper));
      }
    }
    for (const [r, c] of f.m.marks) this.frame(g, f.box(r, c), 2);
  }

  tiles(g, f) {
    const { m } = f;
    for (let r = 0; r < f.rows; r++) for (let c = 0; c < f.columns; c++) {
      const text = m.labels[r][c];
      if (text === null) continue;
      const [x, y, w, h] = f.box(r, c), head = m.heads[r][c];
      const fill = head >= 0 ? this.look.heads[head % this.look.heads.length] : "#D3D7DC";
      g.fillStyle = fill;
      g.fillRect(x, y, w, h);
      if (m.wrong[r][c]) {
        g.strokeStyle = "#111111";
        g.lineWidth = 1.6;
        g.setLineDash([3, 2.4]);
        g.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3);
        g.setLineDash([]);
      }
      if (text && w >= 7.4 * text.length + 2) this.write(g, text, x + w / 2, y + h / 2, 12, textOn(parse(fill)));
    }
  }

  // ---- pointing ----

  at(x, y) {
    for (let i = 0; i < this.fields.length; i++) {
      const cell = this.fields[i].hit(x, y);
      if (cell) return [i, ...cell];
    }
    return null;
  }

  point(e) {
    if (!this.scene) return;
    const box = this.canvas.getBoundingClientRect();
    const scale = (this.scene.width + 4) / box.width;
    this.move(this.at((e.clientX - box.left) * scale - 2, (e.clientY - box.top) * scale - 2));
  }

  // A finger has no hover: a tap reads a cell, a second one on it lets go.
  tap(e) {
    if (e.pointerType === "mouse" || !this.scene) return;
    const before = String(this.cursor);
    this.point(e);
    if (String(this.cursor) === before) this.move(null);
  }

  move(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    this.draw();
  }

  key(e) {
    if (this.flow?.key(e)) return e.preventDefault();
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    const known = step || ["Home", "End", "PageUp", "PageDown", "Escape"].includes(e.key);
    if (!known || e.ctrlKey || e.metaKey || e.altKey || !this.fields?.length) return;
    e.preventDefault();
    e.stopPropagation();
    if (e.key === "Escape") return this.move(null);
    let [i, r, c] = this.cursor ?? [0, 0, -1];
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
  }

  mark(g) {
    this.lit = [];
    if (this.flow) return this.flow.mark(g);
    if (!this.cursor) return;
    const [i, r, c] = this.cursor, f = this.fields[i];
    if (!f || r >= f.rows || c >= f.columns) { this.cursor = null; return; }
    const link = f.kind === "tiles" ? f.m.links[r][c] : -1;
    this.fields.forEach((other, k) => {
      if (other.kind !== "g" || link < 0) return;
      other.m.links.forEach((row, y) => row.forEach((l, x) => {
        if (l !== link) return;
        this.lit.push([k, y, x]);
        this.frame(g, other.box(y, x), 2.5);
      }));
    });
    this.frame(g, f.box(r, c), 2);
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
    if (!cursor) { reading.style.opacity = 0; reading.textContent = ""; return; }
    const [i, r, c] = cursor, f = this.fields[i], said = f.says(r, c) ?? "";
    const title = f.kind === "heatmap" && this.fields.length > 1 && f.m.title ? `${f.m.title}: ` : "";
    if (reading.textContent !== title + said) reading.textContent = title + said;
    reading.style.opacity = said ? 1 : 0;
    const scale = this.canvas.clientWidth / (this.scene.width + 4), [x, y, w, h] = f.box(r, c);
    const left = Math.min((x + w / 2) * scale, this.stage.clientWidth - reading.offsetWidth - 4);
    const above = y * scale - reading.offsetHeight - 8;
    reading.style.transform = `translate(${Math.max(0, left)}px, ${above >= 0 ? above : (y + h) * scale + 10}px)`;
  }
}

// ---- names for ipywidgets' sliders, which have none -----------------------------------------------

// and a way to keep the keys that JupyterLab would take from a focused control (b adds a cell).
function nameSliders(root) {
  for (const control of root.querySelectorAll("input, select, [role=slider], [contenteditable]"))
    control.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const slider of root.querySelectorAll(".widget-slider, .widget-hslider, .widget-inline-hbox")) {
    const name = slider.querySelector(".widget-label")?.textContent.trim();
    const readout = slider.querySelector(".widget-readout");
    for (const handle of slider.querySelectorAll("[role=slider]")) {
      if (name && handle.getAttribute("aria-label") !== name) handle.setAttribute("aria-label", name);
      const said = readout?.textContent.trim();
      if (said && handle.getAttribute("aria-valuetext") !== said) handle.setAttribute("aria-valuetext", said);
    }
    if (name && readout && !readout.hasAttribute("aria-label")) {
      readout.setAttribute("aria-label", `${name}, typed`);
      if (readout.isContentEditable) readout.setAttribute("role", "textbox");
    }
  }
}

// ---- stored states ---------------------------------------------------------------------------------

// What mha_lesson.pictures.states.squeezed made: states, their marks and values, and the way to each.
export async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer(), [size] = new Uint32Array(buffer, 0, 1);
  const stored = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  return { ...stored, values: new Float32Array(buffer, 4 + size) };
}

// The nodes on the way to the state at these positions; one that earlier controls do not leave is the last they do.
function way({ tree }, at) {
  const nodes = [tree];
  for (const place of at) nodes.push(nodes.at(-1)[Math.min(place, nodes.at(-1).length - 1)]);
  return nodes;
}

export function stateAt(stored, at) {
  const state = stored.states[way(stored, at).at(-1)];
  return { ...state, marks: state.marks.map((i) => stored.marks[i]) };
}

const floats = (view) => new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));

// Where a control stands among its positions.
function position(model, { input, min, step }) {
  if (input === "checkbox") return Number(model.get("value"));
  return model.get("index") ?? Math.round((model.get("value") - min) / step);
}

// ---- the widget --------------------------------------------------------------------------------------

async function render({ model, el }) {
  const view = new View(el, model.get("look"));
  const off = [];
  const listen = (m, event, f) => { m.on(event, f); off.push(() => m.off(event, f)); };
  let room = 0;
  const resize = new ResizeObserver(() => {
    const now = Math.floor((el.clientWidth - 8) / 20) * 20;
    if (!now || now === room) return;
    room = now;
    view.tallest = 0;
    const wanted = Math.min(860, Math.max(320, now));
    if (!view.stored && wanted !== model.get("room")) { model.set("room", wanted); model.save_changes(); }
    view.again();
  });
  const fail = () => view.fail(model.get("error"));
  listen(model, "change:error", fail);
  const start = async () => {
    const explorer = el.closest(".mha-explorer");
    if (explorer) {
      const names = new MutationObserver(() => nameSliders(explorer));
      names.observe(explorer, { subtree: true, childList: true, attributes: true, characterData: true,
                                attributeFilter: ["aria-valuetext", "aria-valuenow"] });
      nameSliders(explorer);
      off.push(() => names.disconnect());
    }
    const ask = () => { if (!view.stored) view.show(model.get("scene"), floats(model.get("data"))); };
    listen(model, "change:scene", ask);
    ask();
    const arrive = async () => { // all states are here: from now on the kernel is not asked
      if (!model.get("stored").byteLength) return;
      const stored = await unpack(model.get("stored"));
      const controls = await Promise.all(stored.controls.map((c) => model.widget_manager.get_model(c.id)));
      const go = () => view.show(stateAt(stored, controls.map((m, k) => position(m, stored.controls[k]))), stored.values);
      controls.forEach((m, k) => listen(m, stored.controls[k].input === "checkbox" || !("index" in m.attributes)
        ? "change:value" : "change:index", go));
      view.stored = stored;
      go();
    };
    listen(model, "change:stored", arrive);
    arrive();
    fail();
    resize.observe(el);
  };
  requestAnimationFrame(start); // the element is in the page, and has its theme, one frame from now
  return () => { off.forEach((f) => f()); resize.disconnect(); view.remove(); };
}

// ---- a saved page ------------------------------------------------------------------------------------

export async function mount(el, look, bytes) {
  const stored = await unpack(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)));
  const bar = document.createElement("div"), stage = document.createElement("div");
  bar.className = "mha-controls";
  el.classList.add("mha-explorer");
  el.replaceChildren(bar, stage);
  const view = new View(stage, look), at = stored.controls.map((c) => c.start);
  const controls = stored.controls.map((c, k) => {
    const label = bar.appendChild(document.createElement("label")), now = document.createElement("output");
    const input = document.createElement(c.input === "select" ? "select" : "input");
    if (c.input === "select") input.append(...c.said.map((said, i) => new Option(said, i)));
    else Object.assign(input, { type: c.input, min: 0, step: 1 });
    label.append(c.name, input, ...(c.input === "range" ? [now] : []));
    if (c.typed) label.append("(to type your own, open the notebook in JupyterLab)");
    input.addEventListener("input", () => {
      at[k] = wish(Number(c.input === "checkbox" ? input.checked : input.value), k);
      go();
    });
    return { label, input, now };
  });
  // Who goes to the end of a slider wants the end, wherever other controls put it later.
  const left = (k) => way(stored, at.slice(0, k)).at(-1).length;
  const wish = (place, k) => (stored.controls[k].input === "range" && place === left(k) - 1 ? Infinity : place);
  function go() {
    stored.controls.forEach((c, k) => {
      const { label, input, now } = controls[k], count = left(k), place = Math.min(at[k], count - 1);
      if (c.input === "checkbox") {
        label.hidden = count === 1;
        input.checked = place === 1;
        return;
      }
      if (c.input === "select") [...input.options].forEach((o, i) => { o.hidden = o.disabled = i >= count; });
      else input.max = count - 1;
      input.value = place;
      now.textContent = c.said[place];
      if (c.input === "range") input.setAttribute("aria-valuetext", c.said[place]);
    });
    view.show(stateAt(stored, at), stored.values);
  }
  at.forEach((place, k) => { at[k] = wish(place, k); });
  go();
}

export default { render };
