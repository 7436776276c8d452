// What is under the pointer: cells, tiles, words and bars, and what each of them says; numbers and colours with it.

// ---- numbers as mha_course.pictures.numerals.number writes them ---------------------------------------------

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

function colours(el) {
  let page = [255, 255, 255];
  for (let at = matchMedia("print").matches ? null : el; at; at = at.parentElement) { // paper is white
    const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0.5) { page = c.slice(0, 3); break; }
  }
  const dark = luminance(page) < 0.18;
  return { page, dark, text: dark ? "#E4E4E4" : "#2B2B2B", faint: dark ? "#E4E4E440" : "#2B2B2B33",
           hatch: dark ? "#E4E4E466" : "#2B2B2B66", focus: dark ? "#6FB1F5" : "#1565B8" };
}

// [row, column, weight] of each ribbon, the strong ones last: mha_course.pictures.words.Words.
function linksOf({ values, blocked, columns }, faint) {
  const links = [];
  values.forEach((weight, i) => {
    if (weight >= faint && !blocked?.[i]) links.push([Math.floor(i / columns.length), i % columns.length, weight]);
  });
  return links.sort((a, b) => a[2] - b[2]);
}

// ---- fields: what can be pointed at -----------------------------------------------------------------

// Of kind "heatmap", "tiles", "ribbons" (queries in column 0, keys in column 1), "items" (bars or dots in a row).
export class Field {
  constructor(kind, m, theme) {
    this.kind = kind;
    this.m = m;
    this.theme = theme;
    if (kind === "heatmap") {
      [this.rows, this.columns] = m.shape;
      [this.values, this.blocked] = [m.values, m.blocked];
    } else if (kind === "tiles") {
      [this.rows, this.columns] = [m.labels.length, m.labels[0].length];
    } else if (kind === "ribbons") {
      [this.rows, this.columns] = [Math.max(m.rows.length, m.columns.length), 2];
      this.links = linksOf(m, theme.faint);
    } else {
      [this.rows, this.columns] = [1, m.length];
    }
  }
  gaps(index, every) { return every ? this.theme.break * Math.floor(index / every) : 0; }
  box(r, c) {
    const m = this.m;
    if (this.kind === "items") return m[c].box;
    if (this.kind === "ribbons") return [c ? m.x + m.w + 2 : m.x - m.margin + 2, m.y + r * m.h, m.margin - 4, m.h];
    return [m.x + c * m.w + this.gaps(c, m.break_columns), m.y + r * m.h + this.gaps(r, m.break_rows),
            m.w - m.gap, m.h - m.gap];
  }
  hit(x, y) {
    if (this.kind === "items") {
      const c = this.m.findIndex(({ box: [a, b, w, h] }) => x >= a && x <= a + w && y >= b && y <= b + h);
      return c < 0 ? null : [0, c];
    }
    const m = this.m;
    if (this.kind === "ribbons") {
      const r = Math.floor((y - m.y) / m.h), c = Number(x > m.x + m.w / 2);
      return x > m.x - m.margin && x < m.x + m.w + m.margin && this.says(r, c) ? [r, c] : null;
    }
    if (x < m.x || y < m.y) return null;
    const place = (d, size, every) => {
      const block = every ? Math.floor(d / (every * size + this.theme.break)) : 0;
      return Math.floor((d - this.theme.break * block) / size);
    };
    const r = place(y - m.y, m.h, m.break_rows), c = place(x - m.x, m.w, m.break_columns);
    return r < this.rows && c < this.columns && this.says(r, c) !== null ? [r, c] : null;
  }
  says(r, c) {
    const m = this.m;
    if (this.kind === "items") return m[c].says;
    if (this.kind === "tiles") return m.labels[r][c] === null ? null : m.says[r][c];
    if (this.kind === "ribbons") {
      const word = (c ? m.columns : m.rows)[r], others = c ? m.rows : m.columns;
      if (word === undefined) return null;
      const links = this.links.filter((link) => link[c] === r).slice(-4).reverse();
      return `${word} ${c ? "←" : "→"} ${links.map((l) => `${others[l[1 - c]]} ${number(l[2], 2)}`).join(", ") || "nothing much"}`;
    }
    return `${m.rows[r]} → ${m.columns[c]} = ${this.cell(r, c)}`;
  }
  // The names of a cell's row and column, of those that have some.
  names(r, c) {
    const { rows, columns } = this.m;
    return this.kind === "ribbons" ? (c ? columns : rows)[r] : `${rows?.[r]} → ${columns?.[c]}`;
  }
  cell(r, c) {
    const i = r * this.columns + c;
    if (this.m.mask) return this.values[i] ? "True" : "False";
    return this.blocked && this.blocked[i] ? "blocked" : number(this.values[i], this.m.decimals);
  }
  same(other) {
    const names = (f) => [f.m.rows, f.m.columns].join();
    return [this, other].every((f) => f.kind === "heatmap" || f.kind === "ribbons") && names(this) === names(other);
  }
  levels(perRow) {
    // where each value lies in its map, 0 to 255: Heatmap.levels
    const { m, values, blocked, columns } = this, out = new Uint8Array(values.length);
    const [low, end] = m.limits;
    let high = end;
    for (let r = 0; r < this.rows; r++) {
      if (perRow) {
        let top = 0;
        for (let i = r * columns; i < (r + 1) * columns; i++)
          if (!(blocked && blocked[i]) && Number.isFinite(values[i])) top = Math.max(top, Math.abs(values[i]));
        high = top || 1;
      }
      for (let i = r * columns; i < (r + 1) * columns; i++) {
        const share = Math.min(1, Math.max(0, (values[i] - low) / (high - low)));
        out[i] = Math.round((Number.isNaN(share) ? 0 : share) * 255);
      }
    }
    return out;
  }
}

// Where the arrows of a walk begin and end.
function cornersOf({ x, y, unit, steps }) {
  const corners = [[x, y]];
  for (let i = 0; i < steps.length; i += 2) {
    const [a, b] = corners.at(-1);
    corners.push([a + steps[i] * unit, b - steps[i + 1] * unit]);
  }
  return corners;
}
