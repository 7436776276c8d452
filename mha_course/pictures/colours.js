// Colours: those of the page around a picture, what reads on them, and the maps from values to colours.

export const parse = (css) => {
  const m = css.match(/[\d.]+/g);
  if (css[0] === "#") return [1, 3, 5].map((i) => parseInt(css.slice(i, i + 2), 16));
  return m ? m.slice(0, 4).map(Number) : [0, 0, 0, 0];
};
const luminance = (c) => {
  const [r, g, b] = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
export const textOn = (c) => (luminance(c.slice(0, 3)) > 0.179 ? "#000000" : "#FFFFFF");

export function colours(el) {
  let page = [255, 255, 255];
  for (let at = matchMedia("print").matches ? null : el; at; at = at.parentElement) { // paper is white
    const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0.5) { page = c.slice(0, 3); break; }
  }
  const dark = luminance(page) < 0.18;
  const of = { page, dark, text: dark ? "#E4E4E4" : "#2B2B2B", faint: dark ? "#E4E4E440" : "#2B2B2B33",
           hatch: dark ? "#E4E4E466" : "#2B2B2B88", focus: dark ? "#6FB1F5" : "#1565B8" };
  return matchMedia("(prefers-contrast: more)").matches ? { ...of, faint: `${of.text}B3`, hatch: `${of.text}CC` } : of;
}

// As NumPy rounds: a half goes to the even number.
const rounded = (v) => (v % 2 === 0.5 ? Math.floor(v) : Math.round(v));

// 256 colours [red, green, blue, opacity] from a faint tint of the page to `top`: mha_course.pictures.colours.
const ramp = (top, ink) => Array.from({ length: 256 }, (_, i) => {
  const t = i / 255, rest = (1 - t) ** 6;
  return [...parse(top).map((v, k) => rounded(parse(ink)[k] * rest + v * (1 - rest))),
    rounded(255 * (0.09 + 0.91 * t))];
});

// A map up to `top` far above zero; with `low`, from there far below zero.
export function mapOf([top, low], ink) {
  const above = ramp(top, ink);
  if (!low) return above;
  return [...ramp(low, ink).filter((_, i) => i % 2).reverse(), ...above.filter((_, i) => i % 2 === 0)];
}
