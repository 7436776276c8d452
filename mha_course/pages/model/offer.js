// What a page offers before anybody asks for a model: `mhaOffers` is { typed, writer }, as far as the site has them.
{
  const { typed, writer } = window.mhaOffers;
  const script = (src) => new Promise((onload, fail) => {
    const onerror = () => fail(new Error("The model's script did not come: is there a network? Try once more."));
    document.head.append(Object.assign(document.createElement("script"), { src, onload, onerror }));
  });

  // Bytes until the first ribbons of a dozen tokens, and until the next word; and what promises a source (writing.js).
  if (writer) window.mhaWriter = { ...writer, open: () => script("writing.js").then(() => window.mhaWriting) };

  // Beside the first explorer with a place for a sentence comes the script of the field; the model waits to be asked.
  if (typed) document.addEventListener("mha-mounted", async ({ detail }) => {
    const { place } = detail, button = Object.assign(document.createElement("button"), { type: "button" });
    if (!place) return;
    Object.assign(button, { disabled: true, textContent: typed });
    place.replaceChildren(button, document.createElement("span")); // as wide as what comes
    if (!window.mhaTyped) await script("typed.js");
    (await window.mhaTyped).offer(detail);
  });
}
