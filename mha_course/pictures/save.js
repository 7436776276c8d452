// A picture as a file: PNG from its canvas, or SVG, written by a context that takes what a canvas's takes.

import { element, pressable } from "./elements.js";
import { csvOf, fillTables, tablesOf } from "./tables.js";
import { pictureOf } from "./writes_picture.js";

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

// The lines around a saved picture, [text, size, bold, y], and the heights that they take above and below it: what
// there is to see, what is seen, and where it is from.
function around({ el, scene, flow, font }, g, width, height) {
  const lines = [], at = { y: 0 };
  const write = (text, size, bold) => {
    g.font = `${bold ? "600 " : ""}${size}px ${font}`;
    const words = (text ?? "").split(" ").filter(Boolean), started = lines.length;
    for (const word of words) {
      const last = lines.at(-1), longer = `${last?.[0]} ${word}`;
      if (lines.length > started && g.measureText(longer).width <= width) last[0] = longer;
      else { lines.push([word, size, bold, at.y + 0.7 * size]); at.y += 1.45 * size; }
    }
  };
  write(el.closest(".mha-explorer")?.querySelector(".mha-lead")?.textContent, 17, true);
  write([scene.caption, flow?.sentence].filter(Boolean).join(" "), 13, false);
  const above = at.y + 10;
  at.y = above + height + 8;
  write(`${document.title}${location.host ? `, ${location.host}${location.pathname}` : ""}`, 13, false);
  return { lines, above, all: at.y + 4 };
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
  const { lines, above, all } = around(view, written, width - 4, height);
  Object.assign(written, { fillStyle: view.colours.text, textAlign: "left", globalAlpha: 1 });
  for (const [text, size, bold, y] of lines) {
    written.font = `${bold ? "600 " : ""}${size}px ${view.font}`;
    written.fillText(text, 0, y - above - 2);
  }
  const box = { x: -2, y: -2 - above, width, height: all };
  const page = tag("rect", { ...box, fill: `rgb(${view.colours.page})` });
  const inside = `${tag("title", {}, escaped(scene.alt))}${tag("defs", {},
    written.defined.join(""))}${page}${written.parts.join("\n")}`;
  return tag("svg", { xmlns: "http://www.w3.org/2000/svg", width, height: all, viewBox: Object.values(box).join(" ") },
    inside);
}

// At twice the size, whatever the screen.
async function pngOf(view) {
  const { canvas, colours, scene } = view, [width, height] = [scene.width + 4, scene.height + 4];
  const paper = document.createElement("canvas"), g = paper.getContext("2d");
  const { lines, above, all } = around(view, g, width - 4, height);
  Object.assign(paper, { width: 2 * width, height: 2 * all });
  g.scale(2, 2);
  g.fillStyle = `rgb(${colours.page})`;
  g.fillRect(0, 0, width, all);
  view.density = 2 / view.unit;
  view.draw();
  g.drawImage(canvas, 0, above, width, height);
  view.density = null;
  view.draw();
  g.fillStyle = colours.text;
  g.textBaseline = "middle";
  for (const [text, size, bold, y] of lines) {
    g.font = `${bold ? "600 " : ""}${size}px ${view.font}`;
    g.fillText(text, 2, y);
  }
  return new Promise((done) => { paper.toBlob(done); });
}

// Work on a view while it shows all that is seen: of a prompt also what the page draws itself.
function whole(view, work) {
  const { scene, cursor, pinned, tallest, writes } = view;
  try {
    if (writes) Object.assign(view, { scene: pictureOf(writes), cursor: null, pinned: null, tallest: Infinity });
    return work(view);
  } finally {
    Object.assign(view, { scene, cursor, pinned, tallest });
    view.draw();
  }
}

// A menu that saves what a view shows, its picture or its numbers, or copies the tables.
export function savers(view) {
  const name = () => view.el.closest("[id^=explore-]")?.id ?? "picture";
  const menu = element("details", { className: "mha-save" }, element("summary", { textContent: "Save" }));
  const entry = (text, press) => {
    menu.append(pressable(text, async () => {
      const said = await press();
      menu.open = false;
      menu.firstChild.focus();
      view.say(said);
    }));
  };
  const saves = (text, kind, blob) => entry(text, async () => {
    const href = URL.createObjectURL(await whole(view, blob)), file = `${name()}.${kind}`;
    element("a", { href, download: file }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
    return `Saved: ${file}.`;
  });
  saves("picture (PNG)", "png", pngOf);
  saves("picture (SVG)", "svg", () => new Blob([svgOf(view)], { type: "image/svg+xml" }));
  saves("numbers (CSV)", "csv", () => new Blob(["\uFEFF", csvOf(view)], { type: "text/csv" }));
  entry("copy the tables", () => { // by what is selected: that needs no permission
    const { details, tables } = view, open = details.open, selected = getSelection();
    details.open = true;
    fillTables(tables, tablesOf(view));
    selected.selectAllChildren(tables);
    const done = document.execCommand("copy");
    selected.removeAllRanges();
    details.open = open;
    return done ? "The tables are copied." : "The tables could not be copied.";
  });
  return menu;
}
