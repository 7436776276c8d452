// What a page of the site does by itself: light or dark, contents, search. Nothing is fetched from elsewhere.
"use strict";

const root = document.documentElement;
const stored = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
const store = (key, value) => { try { localStorage.setItem(key, value); } catch { /* private mode */ } };
const chosen = stored("theme");
if (chosen) root.dataset.theme = chosen;

const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches && "dark")) === "dark";

// A script is loaded once; if it does not come, `place` says so, and it may be asked for again.
const lost = Object.assign(document.createElement("p"), { className: "note",
  textContent: "A part of this page did not come: is there a network? Load it again." });
const load = (name, place) => load[name] ??= new Promise((onload) => {
  const onerror = () => { load[name] = null; place.prepend(lost); place.hidden = false; };
  document.head.append(Object.assign(document.createElement("script"), { src: `${name}.js`, onload, onerror }));
});

function toggleTheme({ currentTarget }) {
  root.dataset.theme = dark() ? "light" : "dark";
  currentTarget.ariaPressed = dark();
  store("theme", root.dataset.theme);
}

// ---- search: for the sections that have most of the words; search.js has their texts, loaded at the first ----

const SMALL = new Set(("a an and are as at be by do does for how in is it of on or that the to what when where which " +
  "who why with").split(" "));
const SIGNS = { sqrt: "√", root: "√", softmax: "softmax", times: "·", infinity: "∞", alpha: "α" };
// The ways in which a word is looked for: its stem, and a sign that says the same.
const waysOf = (word) => [word.length > 4 ? word.replace(/(ing|ed|es|s|e)$/, "") : word, SIGNS[word]].filter(Boolean);
const within = (text, ways) => ways.some((way) => text.includes(way));

async function search(query, list, status) {
  search.latest = query;
  const words = query.toLowerCase().split(/[\s?!,;]+/).filter(Boolean), telling = words.filter((word) =>
    !SMALL.has(word));
  const wanted = telling.length ? telling : words;
  if (wanted.length) await load("search", list);
  if (search.latest !== query) return; // something else has been typed since
  const all = wanted.length ? window.SECTIONS : [];
  const scored = all.map((s) => {
    const [title, text] = [s.title, s.text].map((part) => part.toLowerCase()),
      found = wanted.map(waysOf).filter((ways) => within(title, ways) || within(text, ways));
    return { s, text, found: found.length, named: found.filter((ways) => within(title, ways)).length };
  });
  const most = Math.max(1, ...scored.map(({ found }) => found)), hits = scored.filter(({ found }) =>
    found === most).sort((a, b) => b.named - a.named);
  list.replaceChildren(...hits.slice(0, 20).map(({ s, text }) => {
    const item = document.createElement("li"), link = document.createElement("a"),
      around = document.createElement("span");
    link.href = `${s.page}.html#${s.id}`;
    link.textContent = s.title;
    const at = Math.max(0, Math.min(...wanted.flatMap(waysOf).map((way) => text.indexOf(way)).filter((i) => i >= 0),
      text.length) - 40);
    around.textContent = `${s.page_title}: ${at ? "… " : ""}${s.text.slice(at, at + 110)} …`;
    link.append(around);
    item.append(link);
    return item;
  }));
  list.hidden = !hits.length;
  const found = `${hits.length} ${hits.length === 1 ? "section" : "sections"} found`;
  clearTimeout(search.due); // who listens hears it once the typing rests
  search.due = setTimeout(() => { status.textContent = wanted.length
    ? found + (hits.length > 20 ? ", the first 20 are listed" : "") : ""; }, 500);
}

// ---- a link restores what one sees: #explore-cut?layer=3&head=1&text=… ----

const OWN = ["word", "cuts", "share", "mode"]; // what a picture of its own adds to its controls
const [linked, asked] = location.hash.slice(1).split("?");

document.addEventListener("mha-mounted", ({ detail }) => {
  const { el, controls: { all, at, set }, view } = detail, given = new URLSearchParams(el.id === linked ? asked : "");
  all.forEach(({ key, labels }, k) => { if (labels.includes(given.get(key))) set(k, labels.indexOf(given.get(key))); });
  const text = given.get("text");
  if (!all.some(({ labels }) => labels.includes(text))) detail.text = text; // it was typed: it waits for the model
  const mine = () => view.cut ?? view.writes,
    known = (list) => { try { return JSON.parse(list); } catch { return undefined; } }; // a link may be broken
  const own = OWN.map((key) => [key, known(given.get(key))]).filter(([, value]) => value !== undefined
    && value !== null);
  detail.restored = () => {
    const { state } = mine() ?? {}, then = { ...state, ...Object.fromEntries(own) };
    if (own.length && state && state.text === (text ?? state.text)
      && mine().knows(then)) { mine().state = then; own.length = 0; }
  };
  requestAnimationFrame(detail.restored);
  if (detail.text) view.writes?.wait({ text, ...Object.fromEntries(own) }, detail.restored);
  const write = () => {
    const seen = all.map(({ key, labels }, k) => [key, labels[at(k)]]), state = mine()?.state ?? {}, { text } = state;
    const more = Object.fromEntries(OWN.filter((key) => key in state).map((key) => [key, JSON.stringify(state[key])]));
    const typed = text ?? detail.typed;
    history.replaceState(null, "",
      `#${el.id}?${new URLSearchParams({ ...Object.fromEntries(seen), ...(typed ? { text: typed } : {}), ...more })}`);
  };
  el.addEventListener("mha-moved", write);
  el.addEventListener("mha-state", write);
});

document.addEventListener("DOMContentLoaded", () => {
  const theme = document.querySelector(".theme");
  theme.ariaPressed = dark();
  theme.addEventListener("click", toggleTheme);
  document.querySelector("nav details").open = matchMedia("(min-width: 70rem)").matches;
  const box = document.querySelector(".find"), [input, list, status] = box.children;
  input.addEventListener("input", () => search(input.value, list, status));
  const close = () => { list.hidden = true; };
  list.addEventListener("click", close);
  document.addEventListener("click", (e) => { if (!box.contains(e.target)) close(); });
  box.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { close(); input.focus(); }
    const links = [input, ...list.querySelectorAll("a")], step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!step || !list.firstChild) return;
    e.preventDefault();
    list.hidden = false;
    links[Math.min(Math.max(links.indexOf(document.activeElement) + step, 0), links.length - 1)].focus();
  });

  // an explorer's script is loaded when it comes near: the page can be read before
  const near = new IntersectionObserver((entries) =>
    entries.filter((e) => e.isIntersecting).forEach(async ({ target }) => {
    near.unobserve(target);
    await load("explore", target);
    load(target.id, target);
  }), { rootMargin: "300px" });
  document.querySelectorAll("[id^=explore-]").forEach((explorer) => near.observe(explorer));
  const there = asked && document.getElementById(linked);
  there?.closest("details")?.setAttribute("open", "");
  there?.scrollIntoView();

  // on paper the folded code is open, since texts speak of it
  const folded = () => document.querySelectorAll(".folded:not([open])");
  addEventListener("beforeprint", () => folded().forEach((fold) => { fold.open = fold.paper = true; }));
  addEventListener("afterprint", () => document.querySelectorAll(".folded")
    .forEach((fold) => { if (fold.paper) fold.open = fold.paper = false; }));

  // a button among the controls of the first page's picture takes the next step
  const next = document.querySelector("button.next");
  const addButton = (records, observer) => {
    const step = document.querySelector("[id^=explore-flow] input[type=range]");
    if (!step) return;
    observer.disconnect();
    const explorer = step.closest(".mha-explorer");
    const moveTo = (position) => { step.value = position; step.dispatchEvent(new Event("input", { bubbles: true })); };
    const named = () => { next.textContent = step.value === step.max ? "from the start" : "next step"; };
    step.addEventListener("input", named);
    named();
    step.closest("label").after(next);
    next.hidden = false;
    next.addEventListener("click", () => {
      moveTo(step.value === step.max ? step.min : +step.value + 1);
      const { bottom, height } = explorer.getBoundingClientRect(); // a higher one shows its new block by itself
      if (bottom > innerHeight && height <= innerHeight) explorer.scrollIntoView();
    });
  };
  if (next) new MutationObserver(addButton)
    .observe(document.getElementById("main"), { childList: true, subtree: true });

  // what is far away waits until the window has been seen; then it is laid out in idle moments
  const waiting = [...document.querySelectorAll("#main > *")];
  const layOut = (idle) => {
    while (waiting.length && idle.timeRemaining() > 5) {
      const part = waiting.shift();
      part.style.contentVisibility = "visible";
      part.getBoundingClientRect();
    }
    if (waiting.length) return requestIdleCallback(layOut);
    root.classList.remove("opening");
  };
  if (root.classList.contains("opening")) requestIdleCallback(layOut);

  // parts wider than the page get the focus, so that arrow keys scroll them
  const widths = new ResizeObserver((entries) => entries.forEach(({ target: part }) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }));
  document.querySelectorAll(".scroll").forEach((part) => widths.observe(part));
});
