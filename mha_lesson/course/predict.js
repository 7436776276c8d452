// Remembers what a reader guessed, in this browser only. The boxes work without it.
// On a page it is a script; in a running notebook a widget as well, which tells the kernel.

const KEY = "mha_lesson guesses";

class Guesses extends EventTarget {
  constructor() {
    super();
    this.said = {};
    this.read();
    document.addEventListener("click", (event) => this.click(event.target));
    addEventListener("storage", () => this.read() && this.tell());  // another tab has written
  }

  read() {
    try {
      this.said = JSON.parse(localStorage.getItem(KEY)) ?? {};
      return true;
    } catch {
      return false;  // a browser that keeps nothing
    }
  }

  click(target) {
    if (target.closest(".mha-guess button")) return this.keep({});
    const link = target.closest('.jp-Notebook :is(.mha-guess a, .jp-MarkdownOutput a[href*="#"])');
    if (link) return arrive(link);
    const fold = target.closest(".mha-guess summary")?.parentElement;
    if (!fold || fold.open) return;
    const box = fold.closest("details[name]"), name = box.getAttribute("name");
    const says = box.firstElementChild.textContent, before = this.said[name];
    // A guess may change until its reader has looked.
    if (fold !== box) before && this.keep({ ...this.said, [name]: { ...before, looked: true } });
    else if (!before?.looked) this.keep({ ...this.said, [name]: { says } });
  }

  keep(said) {
    this.said = said;
    try {
      localStorage.setItem(KEY, JSON.stringify(said));
    } catch {}
    this.tell();
  }

  tell() {
    this.mark();
    this.dispatchEvent(new Event("change"));
  }

  mark() {
    for (const box of document.querySelectorAll(".mha-guess details[name]")) {
      const said = this.said[box.getAttribute("name")], summary = box.firstElementChild;
      summary.toggleAttribute("data-mine", said?.says === summary.textContent);
    }
    for (const box of document.querySelectorAll(".mha-guess")) {
      if (box.querySelector("button")) continue;
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.textContent = "Forget all my guesses";
      box.append(button);
    }
  }
}

let going;  // the way to a link's heading; a reader who does anything meanwhile ends it
for (const act of ["wheel", "pointerdown", "keydown"]) addEventListener(act, () => going = null, true);

// JupyterLab follows no link into a fold, and stops short while cells are still measured.
async function arrive({ pathname, hash }) {
  const way = going = {};
  const place = CSS.escape(decodeURIComponent(hash.slice(1)));
  const shown = `.jp-NotebookPanel:not(.lm-mod-hidden) [data-jupyter-id="${place}"]`;
  const file = pathname.split("/").at(-1), folded = "jp-MarkdownHeadingCollapsed";
  for (let look = 0, before; look < 100; look++) {
    await new Promise((done) => setTimeout(done, 100));
    if (going !== way) return;
    const heading = location.pathname.endsWith(file) && document.querySelector(shown);
    if (!heading) continue;  // another notebook, which is still being opened
    let cell = heading.closest(".jp-Cell");
    while (cell.matches(`.lm-mod-hidden:not(.${folded})`)) cell = cell.previousElementSibling;
    if (cell.classList.contains(folded)) cell.querySelector(".jp-collapseHeadingButton").click();
    // Focus selects the cell, so that Shift+Enter goes on from here.
    else if (heading.getBoundingClientRect().top === before) return cell.focus({ preventScroll: true });
    heading.scrollIntoView();
    before = heading.getBoundingClientRect().top;
  }
}

const guesses = (window.mhaGuesses ??= new Guesses());
guesses.mark();

function render({ model, el }) {
  const names = model.get("names");
  const tell = () => {
    const mine = names.filter((name) => guesses.said[name]);
    model.set("said", Object.fromEntries(mine.map((name) => [name, guesses.said[name].says])));
    model.save_changes();
  };
  const write = () => {
    const line = document.createElement("small");
    line.textContent = model.get("line");
    el.replaceChildren(line);
  };
  // Now, and whenever the note comes into the page: a notebook opened again is drawn before it is there.
  const seen = new ResizeObserver(() => guesses.mark());
  seen.observe(el);
  guesses.addEventListener("change", tell);
  model.on("change:line", write);
  write();
  if (names.some((name) => guesses.said[name])) tell();  // another browser does not forget for this one
  return () => {
    seen.disconnect();
    guesses.removeEventListener("change", tell);
    model.off("change:line", write);
  };
}

export default { render };
