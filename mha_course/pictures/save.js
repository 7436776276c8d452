// A picture as a file: PNG from its canvas, or SVG, written by a context that takes what a canvas's takes.

import { csvOf, fillTables, tablesOf } from "./tables.js";

const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const tag = (name, attributes, inside = "") => {
  const written = Object.entries(attributes)
    .map(([key, value]) =>
      ` ${key}="${escaped(String(typeof value === "number" ? Number(value.toFixed(2)) : value))}"`);
  return `<${name}${written.join("")}>${inside}</${name}>`;
};

class SvgContext {
  // `canvas` is a canvas's own context: it measures texts and knows colours.
  constructor(canvas) {
    Object.assign(this, { canvas, parts: [], defined: [], turns: [""], dash: [], lineDashOffset: 0, globalAlpha: 1,
      lineWidth: 1, font: "", textAlign: "left" });
  }
  setTransform() {}
  clearRect() {}
  save() { this.turns.push(this.turns.at(-1)); }
  restore() { this.turns.pop(); }
  turn(how) { this.turns.push(`${this.turns.pop()}${how} `); }
  translate(x, y) { this.turn(`translate(${x} ${y})`); }
  rotate(angle) { this.turn(`rotate(${(angle * 180) / Math.PI})`); }
  setLineDash(dash) { this.dash = dash; }
  measureText(text) { this.canvas.font = this.font; return this.canvas.measureText(text); }
  beginPath() { this.d = ""; }
  moveTo(x, y) { this.d += `M${x} ${y}`; }
  lineTo(x, y) { this.d += `${this.d ? "L" : "M"}${x} ${y}`; }
  arc(x, y, r) { this.d += `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }
  closePath() { this.d += "Z"; }

  define(name, attributes, inside) {
    const id = `d${this.defined.length}`;
    this.defined.push(tag(name, { id, ...attributes }, inside));
    return `url(#${id})`;
  }
  createPattern(tile) {
    return { setTransform() {},
      url: () => this.define("pattern", { width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      tag("image", { href: tile.toDataURL(), width: 6, height: 6 })) };
  }
  createLinearGradient(x1, y1, x2, y2) {
    const stops = [];
    return { addColorStop: (offset, css) =>
      stops.push(tag("stop", { offset, ...this.ink("stop-color", "stop-opacity", css) })),
             url: () => this.define("linearGradient", { x1, y1, x2, y2, gradientUnits: "userSpaceOnUse" },
               stops.join("")) };
  }
  // A colour without its share of opacity, which stands beside it: not every program reads both in one.
  ink(colour, opacity, style) {
    if (style.url) return { [colour]: style.url(), [opacity]: this.globalAlpha };
    this.canvas.fillStyle = style;
    const [, r, g, b, a] = this.canvas.fillStyle.match(/rgba\((\d+), (\d+), (\d+), ([\d.]+)\)/) ?? [];
    return { [colour]: a ? `rgb(${r},${g},${b})` : this.canvas.fillStyle,
      [opacity]: this.globalAlpha * Number(a ?? 1) };
  }
  filled() { return this.ink("fill", "fill-opacity", this.fillStyle); }
  stroked() { return { fill: "none", ...this.ink("stroke", "stroke-opacity", this.strokeStyle),
    "stroke-width": this.lineWidth,
      ...(this.dash.length ? { "stroke-dasharray": this.dash.join(" "), "stroke-dashoffset": this.lineDashOffset }
        : {}) }; }
  put(name, attributes, inside) {
    const turned = this.turns.at(-1) ? { transform: this.turns.at(-1).trim() } : {};
    this.parts.push(tag(name, { ...attributes, ...turned }, inside));
  }
  fillRect(x, y, width, height) { this.put("rect", { x, y, width, height, ...this.filled() }); }
  strokeRect(x, y, width, height) { this.put("rect", { x, y, width, height, ...this.stroked() }); }
  fill() { this.put("path", { d: this.d, ...this.filled() }); }
  stroke() { this.put("path", { d: this.d, ...this.stroked(), "stroke-linejoin": "round" }); }
  fillText(text, x, y) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    this.put("text", { x, y, dy: "0.35em", "text-anchor": anchor, style: `font:${this.font}`, ...this.filled() },
      escaped(text));
  }
}

// What a view shows now, as SVG.
export function svgOf(view) {
  const { context, scene } = view, written = new SvgContext(document.createElement("canvas").getContext("2d"));
  const [width, height] = [scene.width + 4, scene.height + 4];
  try {
    Object.assign(view, { context: written, hatched: null });
    view.draw();
  } finally {
    Object.assign(view, { context, hatched: null });
  }
  const page = tag("rect", { x: -2, y: -2, width, height, fill: `rgb(${view.colours.page})` });
  const inside = `${tag("title", {}, escaped(scene.alt))}${tag("defs", {},
    written.defined.join(""))}${page}${written.parts.join("\n")}`;
  return tag("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `-2 -2 ${width} ${height}` },
    inside);
}

async function pngOf({ canvas, colours }) {
  const paper = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height }),
    g = paper.getContext("2d");
  g.fillStyle = `rgb(${colours.page})`;
  g.fillRect(0, 0, paper.width, paper.height);
  g.drawImage(canvas, 0, 0);
  return new Promise((done) => { paper.toBlob(done); });
}

// Buttons that save what a view shows, its picture or its numbers, or copy the tables.
export function savers(view) {
  const button = (text, press) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    made.setAttribute("data-lm-suppress-shortcuts", "true");
    made.addEventListener("click", press);
    return made;
  };
  const saves = (kind, blob) => button(`save ${kind}`, async () => {
    const href = URL.createObjectURL(await blob()), name = view.el.closest("[id^=explore-]")?.id ?? "picture";
    Object.assign(document.createElement("a"), { href, download: `${name}.${kind.toLowerCase()}` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
    view.say(`Saved: ${name}.${kind.toLowerCase()}.`);
  });
  const copy = () => { // by what is selected: that needs no permission
    const { details, tables } = view, open = details.open, selected = getSelection();
    details.open = true;
    fillTables(tables, tablesOf(view));
    selected.selectAllChildren(tables);
    view.say(document.execCommand("copy") ? "The tables are copied." : "The tables could not be copied.");
    selected.removeAllRanges();
    details.open = open;
  };
  return [saves("PNG", () => pngOf(view)), saves("SVG", () => new Blob([svgOf(view)], { type: "image/svg+xml" })),
          saves("CSV", () => new Blob(["\uFEFF", csvOf(view)], { type: "text/csv" })), button("copy tables", copy)];
}
