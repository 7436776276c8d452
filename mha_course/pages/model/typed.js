// The field for a sentence of one's own, beside the offered ones of an explorer. Nothing is fetched before a button
// asks.

import { sayIn } from "../../pictures/controls.js";
import { unpack } from "../../pictures/states.js";
import { bytesOfFile } from "./files.js";
import { headsScene } from "./heads.js";
import { Model } from "./model.js";

const MOST_SHOWN = 24, PAUSE = 250; // tokens of a sentence that is shown; ms without a key until it is taken
const megabytes = (bytes) => `${Math.round(bytes / 1e6)} MB`;
const make = (kind, more) => Object.assign(document.createElement(kind), more);

export class Typed {
  constructor(about, wasm) {
    this.about = about;
    this.model = new Model(about, wasm);
  }

  // `explorer` is what an explorer tells of itself when it is in the page (mha_course/pictures/live.js).
  offer(explorer) {
    const { model, about } = this, { place } = explorer;
    const button = make("button", { type: "button", textContent: window.mhaOffers.typed });
    const status = make("span", { role: "status" }), bar = make("progress", { max: 1, value: 0, hidden: true });
    bar.setAttribute("aria-label", "the model is coming");
    const waits = async (work, again) => { // a button's work, which the network may break off
      if (button.ariaDisabled === "true") return false; // disabled by itself it would lose the focus
      button.ariaDisabled = true;
      status.textContent = "The model is coming.";
      bar.hidden = false;
      try {
        await work((share) => { bar.value = share; });
        status.textContent = "";
        return true;
      } catch (error) {
        status.textContent = error.message;
        button.textContent = again;
        return false;
      } finally {
        bar.hidden = true;
        button.ariaDisabled = false;
      }
    };
    const get = async (asked) => {
      if (!(await waits((progress) => model.open(progress), "Try once more"))) return;
      button.textContent = `Get every word, ${megabytes(about.all - about.bytes)}: then no network is needed`;
      button.onclick = async () =>
      {
        if (!(await waits((progress) => model.open(progress, model.parts), button.textContent))) return;
        if (button.matches(":focus")) explorer.place.firstChild.focus();
        button.remove();
      };
      this.field(explorer, status, button, asked);
    };
    button.onclick = () => get(true);
    if (explorer.text) status.textContent = `This link shows “${explorer.text}”: get the model to see it.`;
    place.replaceChildren(button, bar, status);
    if (model.tokenizer) get(false);
  }

  // The field itself. `explorer.place` gets it; the last sentence that is typed is shown, however fast one types.
  field(explorer, status, button, asked) {
    const { all, at } = explorer.controls, k = all.findIndex(({ key }) => key === "text"),
      chosen = () => all[k].labels[at(k)];
    const input = make("input",
      { type: "text", value: explorer.text ?? chosen(), placeholder: "your own sentence", autocomplete: "off" });
    input.setAttribute("aria-label", "your own sentence");
    const menu = explorer.el.querySelector(".mha-controls select");
    let latest = "", timer = 0, seen = chosen();
    const take = async () => {
      const text = latest = input.value;
      try {
        const sentence = await this.model.sentence(text, MOST_SHOWN);
        if (text !== latest) return;
        await this.show(explorer, sentence);
        sayIn(menu, seen = text);
        status.textContent = `${sentence.T} tokens. Your sentence is not sent; parts of the word list are fetched, ` +
          `which say something of its words.`;
      } catch (error) {
        if (text === latest) status.textContent = error.message;
      }
    };
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(take, PAUSE);
    });
    input.addEventListener("keydown", (e) => { if (e.key === "Enter") { clearTimeout(timer); take(); } });
    explorer.el.addEventListener("mha-moved", () => { // another of the offered ones
      const asked = menu.selectedOptions[0].text;
      if (asked === seen) return;
      input.value = asked;
      take();
    });
    explorer.place.replaceChildren(input, status);
    explorer.el.querySelector(".mha-more").append(button); // the field stays in view, and shall be low
    if (asked) input.select(); // a key replaces what is seen
    return take();
  }

  // Draws a sentence: a view that takes any source does it itself, the picture of all heads is filled here.
  async show(explorer, sentence) {
    const { view, use } = explorer;
    explorer.typed = sentence.text;
    if (view.cut) {
      view.cut.use(sentence);
      explorer.restored?.();
      return;
    }
    this.places ??= bytesOfFile(this.about.folder, "heads").then(unpack);
    const places = await this.places.catch((error) => { this.places = null; throw error; });
    use((at, width) => headsScene(places, sentence, at, width));
  }
}
