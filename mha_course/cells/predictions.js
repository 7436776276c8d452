// Remembers a reader's guesses, in this browser only. The boxes work without it.
// On a page it is a script; in a running notebook also a widget, which sends them to the kernel.

const KEY = "mha_lesson guesses";

class Guesses extends EventTarget {
  constructor() {
    super();
    this.byQuestion = {}; // name → what the guess says, and whether its answer was opened
    this.read();
    document.addEventListener("click", (event) => this.click(event.target));
    addEventListener("storage", () => this.read() && this.changed());  // another tab has written
    new MutationObserver(revealHit).observe(document.body, { subtree: true, attributeFilter: ["class"] });
  }

  read() {
    try {
      this.byQuestion = JSON.parse(localStorage.getItem(KEY)) ?? {};
      return true;
    } catch {
      return false;  // a browser that keeps nothing
    }
  }

  click(target) {
    if (target.closest(".mha-guess button")) return this.forget(target.nextElementSibling);
    const link = target.closest('.jp-Notebook :is(.mha-guess a, .jp-MarkdownOutput a[href*="#"])');
    if (link) return followLink(link);
    const fold = target.closest(".mha-guess summary")?.parentElement;
    if (!fold || fold.open) return;
    const box = fold.closest("details[name]"), name = box.getAttribute("name");
    const says = box.firstElementChild.textContent, before = this.byQuestion[name];
    // A guess may change until its answer is opened.
    if (fold !== box) before && this.store({ ...this.byQuestion, [name]: { ...before, looked: true } });
    else if (!before?.looked) this.store({ ...this.byQuestion, [name]: { says } });
  }

  forget(said) {
    const n = Object.keys(this.byQuestion).length, one = n === 1 ? "your one guess" : `all ${n} guesses`;
    if (n && !confirm(`Forget ${one}, in this and in every other notebook?`)) return;
    this.store({});
    said.textContent = n ? ` Forgotten: ${one}.` : " There is no guess to forget.";
  }

  store(byQuestion) {
    this.byQuestion = byQuestion;
    try {
      localStorage.setItem(KEY, JSON.stringify(byQuestion));
    } catch {}
    this.changed();
  }

  changed() {
    this.mark();
    this.dispatchEvent(new Event("change"));
  }

  mark() {
    for (const box of document.querySelectorAll(".mha-guess details[name]")) {
      const guess = this.byQuestion[box.getAttribute("name")], summary = box.firstElementChild;
      summary.toggleAttribute("data-mine", guess?.says === summary.textContent);
    }
    for (const box of document.querySelectorAll(".mha-guess")) {
      if (box.querySelector("button")) continue;
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.textContent = "Forget all my guesses";
      button.dataset.lmSuppressShortcuts = true;
      box.append(button, Object.assign(document.createElement("span"), { role: "status" }));
    }
  }
}

let active;  // the cell that was JupyterLab's active one
let current;  // the scrolling to a link's heading or a hit; anything that the reader does but search ends it
for (const act of ["wheel", "pointerdown", "keydown"])
  addEventListener(act, ({ target }) => { if (!target.closest?.(".jp-DocumentSearch-overlay")) current = null; }, true);

// Opens the fold that a cell lies in or begins; returns whether it was closed.
function unfold(cell) {
  const folded = "jp-MarkdownHeadingCollapsed";
  while (cell.matches(`.lm-mod-hidden:not(.${folded})`)) cell = cell.previousElementSibling;
  if (!cell.classList.contains(folded)) return false;
  cell.querySelector(".jp-collapseHeadingButton").click();
  return true;
}

// JupyterLab follows no link into a fold, and stops short while cells are still measured.
async function bringIntoView(find) {
  const scrolling = current = {};
  for (let attempt = 0, top; attempt < 100; attempt++) {
    await new Promise((done) => setTimeout(done, 100));
    if (current !== scrolling) return;
    const element = find();
    if (!element) continue;  // in another notebook, which is still being opened
    if (!unfold(element.closest(".jp-Cell")) && element.getBoundingClientRect().top === top) return element;
    element.scrollIntoView();
    top = element.getBoundingClientRect().top;
  }
}

async function followLink({ pathname, hash }) {
  const id = CSS.escape(decodeURIComponent(hash.slice(1))), file = pathname.split("/").at(-1);
  const selector = `.jp-NotebookPanel:not(.lm-mod-hidden) [data-jupyter-id="${id}"]`;
  const heading = await bringIntoView(() => location.pathname.endsWith(file) && document.querySelector(selector));
  heading?.closest(".jp-Cell").focus({ preventScroll: true });  // selects it: Shift+Enter goes on from here
}

// JupyterLab's search also goes to a hit in a fold, and leaves it closed.
function revealHit() {
  const cell = document.querySelector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-active");
  const moved = active !== cell;
  active = cell;
  const searching = document.getElementsByClassName("jp-DocumentSearch-overlay").length > 0;
  if (moved && searching && cell?.classList.contains("lm-mod-hidden")) bringIntoView(() => cell);
}

const guesses = (window.mhaGuesses ??= new Guesses());
guesses.mark();

function render({ model, el }) {
  const names = model.get("names");
  const send = () => {
    const mine = names.filter((name) => guesses.byQuestion[name]);
    model.set("guesses", Object.fromEntries(mine.map((name) => [name, guesses.byQuestion[name].says])));
    model.save_changes();
  };
  const write = () => {
    const line = document.createElement("small");
    line.textContent = model.get("line");
    el.replaceChildren(line);
  };
  // When the note appears in the page: a notebook that is opened again is drawn before its boxes are there.
  const appearing = new ResizeObserver(() => guesses.mark());
  appearing.observe(el);
  guesses.addEventListener("change", send);
  model.on("change:line", write);
  write();
  if (names.some((name) => guesses.byQuestion[name])) send();  // a browser without guesses erases none
  return () => {
    appearing.disconnect();
    guesses.removeEventListener("change", send);
    model.off("change:line", write);
  };
}

export default { render };
