// What a page of the site does by itself: light or dark, contents, finding. Nothing is fetched from elsewhere.
"use strict";

const root = document.documentElement;
const remembered = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* private mode */ } };
const chosen = remembered("theme");
if (chosen) root.dataset.theme = chosen;

function theme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remember("theme", root.dataset.theme);
}

// ---- finding: every word must stand in a section; search.js holds their texts and comes when first asked ----

function sections() {
  sections.asked ??= new Promise((done) => {
    const script = document.createElement("script");
    script.src = "search.js";
    script.onload = () => done(window.SECTIONS);
    document.head.append(script);
  });
  return sections.asked;
}

async function look(query, list, status) {
  look.latest = query;
  const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
  const all = wanted.length ? await sections() : [];
  if (look.latest !== query) return; // something else has been typed since
  const hits = all
    .map((s) => ({ s, title: s.title.toLowerCase(), text: s.text.toLowerCase() }))
    .filter(({ title, text }) => wanted.every((w) => title.includes(w) || text.includes(w)))
    .sort((a, b) => wanted.filter((w) => b.title.includes(w)).length - wanted.filter((w) => a.title.includes(w)).length);
  list.replaceChildren(...hits.slice(0, 20).map(({ s, text }) => {
    const item = document.createElement("li"), link = document.createElement("a"), around = document.createElement("span");
    link.href = `${s.page}.html#${s.id}`;
    link.textContent = s.title;
    const at = Math.max(0, text.indexOf(wanted[0]) - 40);
    around.textContent = `${s.of}: ${at ? "… " : ""}${s.text.slice(at, at + 110)} …`;
    link.append(around);
    item.append(link);
    return item;
  }));
  list.hidden = !hits.length;
  const found = `${hits.length} ${hits.length === 1 ? "section" : "sections"} found`;
  status.textContent = wanted.length ? found + (hits.length > 20 ? ", the first 20 are listed" : "") : "";
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".theme").addEventListener("click", theme);
  document.querySelector("nav details").open = matchMedia("(min-width: 70rem)").matches;
  const box = document.querySelector(".find"), [input, list, status] = box.children;
  input.addEventListener("input", () => look(input.value, list, status));
  const close = () => { list.hidden = true; };
  list.addEventListener("click", close);
  document.addEventListener("click", (e) => { if (!box.contains(e.target)) close(); });
  box.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { close(); input.focus(); }
    const links = [input, ...list.querySelectorAll("a")], step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!step || list.hidden) return;
    e.preventDefault();
    links[Math.min(Math.max(links.indexOf(document.activeElement) + step, 0), links.length - 1)].focus();
  });

  // what moves is fetched when it comes near: a page is there, and read, before that
  const fetched = (name) => fetched[name] ??= new Promise((done) => {
    document.head.append(Object.assign(document.createElement("script"), { src: `${name}.js`, onload: done }));
  });
  const near = new IntersectionObserver((seen) => seen.filter((e) => e.isIntersecting).forEach(async ({ target }) => {
    near.unobserve(target);
    await fetched("explore");
    fetched(target.id);
  }), { rootMargin: "300px" });
  document.querySelectorAll("[id^=explore-]").forEach((place) => near.observe(place));

  // paper shows the code that a text speaks of
  const folded = () => document.querySelectorAll(".folded:not([open])");
  addEventListener("beforeprint", () => folded().forEach((fold) => { fold.open = fold.paper = true; }));
  addEventListener("afterprint", () => document.querySelectorAll(".folded").forEach((fold) => { if (fold.paper) fold.open = fold.paper = false; }));

  // a button among the controls of the first page's picture takes the next step
  const next = document.querySelector("button.next");
  const begin = (records, watching) => {
    const step = document.querySelector("#main input[type=range]");
    if (!step) return;
    watching.disconnect();
    const explorer = step.closest(".mha-explorer");
    const go = (to) => { step.value = to; step.dispatchEvent(new Event("input", { bubbles: true })); };
    step.addEventListener("input", () => { next.textContent = step.value === step.max ? "from the start" : "next step"; });
    step.closest("label").after(next);
    next.hidden = false;
    next.addEventListener("click", () => {
      go(step.value === step.max ? step.min : +step.value + 1);
      const { bottom, height } = explorer.getBoundingClientRect(); // a higher one shows its new block by itself
      if (bottom > innerHeight && height <= innerHeight) explorer.scrollIntoView();
    });
  };
  if (next) new MutationObserver(begin).observe(document.getElementById("main"), { childList: true, subtree: true });

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

  // what is wider than the page moves sideways by keyboard too
  const reach = new ResizeObserver((seen) => seen.forEach(({ target: part }) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }));
  document.querySelectorAll(".scroll").forEach((part) => reach.observe(part));
});
