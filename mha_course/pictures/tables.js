// The numbers of a picture as tables: on its page, as text, and as a file.

import { element } from "./elements.js";

// { title, head, rows } of each panel; `text` says how a cell is written. What another panel shows too is left out.
export function tablesOf({ fields }, text = "cell") {
  const large = fields.filter(({ m }) => m.kind === "heatmap" && !m.picks);
  const repeats = (f) => !large.includes(f) && f.m.values && large.some(({ m }) => m.values === f.m.values);
  return fields.filter((f) => !repeats(f)).map((f) => f.table(text));
}

export function fillTables(place, tables) {
  place.replaceChildren(...tables.map(({ title, head, rows }) => {
    const td = (textContent) => element("td", { textContent }), th = (textContent, scope) =>
      element("th", { textContent, scope });
    const top = head.map((name, i) => (i || name ? th(name, "col") : td("")));
    const body = rows.map(([name, ...cells]) => element("tr", {}, th(name, "row"), ...cells.map(td)));
    return element("table", {}, element("caption", { textContent: title }),
      element("thead", {}, element("tr", {}, ...top)), element("tbody", {}, ...body));
  }));
}

// All tables as CSV, a line with its title before each.
export function csvOf(view) {
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text).replace(/^−/, "-");
  return tablesOf(view, "raw").map(({ title, head, rows }) =>
    [[title], head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("")).join("\r\n");
}
