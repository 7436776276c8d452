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
    new MutationObserver(search).observe(document.body, { subtree: true, attributeFilter: ["class"] });
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
    if (link) return follow(link);
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

let active;  // the cell that JupyterLab was at
let going;  // the way to a link's heading or a hit; a reader who does anything but search meanwhile ends it
for (const act of ["wheel", "pointerdown", "keydown"])
  addEventListener(act, ({ target }) => { if (!target.closest?.(".jp-DocumentSearch-overlay")) going = null; }, true);

// Opens the fold that hides a cell, or that it begins; whether there was one.
function unfold(cell) {
  const folded = "jp-MarkdownHeadingCollapsed";
  while (cell.matches(`.lm-mod-hidden:not(.${folded})`)) cell = cell.previousElementSibling;
  if (!cell.classList.contains(folded)) return false;
  cell.querySelector(".jp-collapseHeadingButton").click();
  return true;
}

// JupyterLab follows no link into a fold, and stops short while cells are still measured.
async function arrive(find) {
  const way = going = {};
  for (let look = 0, before; look < 100; look++) {
    await new Promise((done) => setTimeout(done, 100));
    if (going !== way) return;
    const there = find();
    if (!there) continue;  // in another notebook, which is still being opened
    if (!unfold(there.closest(".jp-Cell")) && there.getBoundingClientRect().top === before) return there;
    there.scrollIntoView();
    before = there.getBoundingClientRect().top;
  }
}

async function follow({ pathname, hash }) {
  const place = CSS.escape(decodeURIComponent(hash.slice(1))), file = pathname.split("/").at(-1);
  const shown = `.jp-NotebookPanel:not(.lm-mod-hidden) [data-jupyter-id="${place}"]`;
  const heading = await arrive(() => location.pathname.endsWith(file) && document.querySelector(shown));
  heading?.closest(".jp-Cell").focus({ preventScroll: true });  // selects it: Shift+Enter goes on from here
}

// JupyterLab's search goes to a hit in a folded text as well, and leaves the fold closed.
function search() {
  const cell = document.querySelector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-active");
  const moved = active !== cell;
  active = cell;
  const searching = document.getElementsByClassName("jp-DocumentSearch-overlay").length > 0;
  if (moved && searching && cell?.classList.contains("lm-mod-hidden")) arrive(() => cell);
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
