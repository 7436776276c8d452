// Elements of a page, and buttons whose keys JupyterLab leaves alone.

export const element = (kind, more = {}, ...inside) => {
  const made = Object.assign(document.createElement(kind), more);
  made.append(...inside);
  return made;
};
export const pressable = (textContent, onclick, more = {}) => {
  const made = element("button", { type: "button", textContent, onclick, ...more });
  made.setAttribute("data-lm-suppress-shortcuts", "true");
  return made;
};
