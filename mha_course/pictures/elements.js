// Elements of a page.

export const element = (kind, more = {}, ...inside) => {
  const made = Object.assign(document.createElement(kind), more);
  made.append(...inside);
  return made;
};
// Other children, of which one has the focus if one had it: the one in its place, or the first. Returns whether.
export const refill = (place, ...made) => {
  const at = [...place.children].indexOf(document.activeElement);
  place.replaceChildren(...made);
  if (at >= 0) (place.children[at] ?? place.firstElementChild)?.focus({ preventScroll: true });
  return at >= 0;
};
export const pressable = (textContent, onclick, more = {}) =>
  element("button", { type: "button", textContent, onclick, ...more });
