// Beside the first explorer with a place for a typed sentence comes the script of the field; the model waits to be asked.

document.addEventListener("mha-mounted", async ({ detail }) => {
  if (!detail.place) return;
  if (!window.mhaTyped) await new Promise((onload) => { document.head.append(Object.assign(document.createElement("script"), { src: "typed.js", onload })); });
  (await window.mhaTyped).offer(detail);
});
