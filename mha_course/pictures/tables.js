// The numbers of a picture as tables: on its page, as text, and as a file.

// { title, head, rows } of each panel; `text` says how a cell is written. What another panel shows too is left out.
export function tablesOf({ fields }, text = "cell") {
  const large = fields.filter(({ m }) => m.kind === "heatmap" && !m.picks);
  const repeats = (f) => !large.includes(f) && f.m.values && large.some(({ m }) => m.values === f.m.values);
  return fields.filter((f) => !repeats(f)).map((f) => f.table(text));
}

export function fillTables(place, tables) {
  place.replaceChildren(...tables.map(({ title, head, rows }) => {
    const table = document.createElement("table"), tr = (cells, tags) => {
      const row = document.createElement("tr");
      cells.forEach((text, i) => {
        const cell = row.appendChild(document.createElement(tags(i)));
        cell.textContent = text;
        if (tags(i) === "th") cell.scope = tags(1) === "th" ? "col" : "row";
      });
      return row;
    };
    table.createCaption().textContent = title;
    table.createTHead().append(tr(head, (i) => (i || head[0] ? "th" : "td")));
    table.createTBody().append(...rows.map((row) => tr(row, (i) => (i ? "td" : "th"))));
    return table;
  }));
}

// All tables as CSV, a line with its title before each.
export function csvOf(view) {
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text).replace(/^−/, "-");
  return tablesOf(view, "raw").map(({ title, head, rows }) =>
    [[title], head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("")).join("\r\n");
}
