// Beside the first explorer with a place for a typed sentence comes the script of the field; the model waits to be
// asked.

document.addEventListener("mha-mounted", async ({ detail }) => {
  const { place } = detail;
  if (!place) return;
  const button = Object.assign(document.createElement("button"),
    { type: "button", disabled: true, textContent: window.mhaOffer });
  place.replaceChildren(button, document.createElement("span")); // as wide as what comes
  if (!window.mhaTyped) await new Promise((onload) =>
    { document.head.append(Object.assign(document.createElement("script"), { src: "typed.js", onload })); });
  (await window.mhaTyped).offer(detail);
});
