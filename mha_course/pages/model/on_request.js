// What a page says of the writing model before anybody asks for it; `open` fetches its script. See writing.js.

window.mhaWriter = {
  ...window.mhaWriterSizes,
  async open() {
    const script = Object.assign(document.createElement("script"), { src: "writing.js" });
    await new Promise((take, fail) => {
      script.onload = take;
      script.onerror = () => fail(new Error("The model's script did not come: is there a network? Try once more."));
      document.head.append(script);
    });
    return window.mhaWriting;
  },
};
