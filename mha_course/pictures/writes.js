// A prompt, what its last word takes from the others, and what the model says next without it: what
// mha_course.pictures.writes sends is drawn as words, ribbons and bars of the page itself.

import { heard } from "./areas.js";
import { sayIn } from "./controls.js";
import { element, pressable, refill } from "./elements.js";
import { away, curve } from "./ribbon.js";

const H = 9, N_LAYERS = 30, LATE = Array.from({ length: 10 }, (_, i) => 20 + i),
  FINGER = 14, MORE = 24; // 24 pixels and what lies between; tokens that are written on
const wholePercent = (p) => (p >= 0.995 ? "99%" : p < 0.005 ? "under 1%" : `${Math.round(100 * p)}%`);
const bare = (piece = "") => piece.trim() || "a space", glued = (piece) => (/^[\p{L}]/u.test(piece) ? `-${piece}`
  : bare(piece));
const million = (bytes) => Math.round(bytes / 1e6);
const alike = (a, b) => String(a) === String(b);
const today = (n) => Math.floor(Date.now() / 864e5) % n; // one of the prompts, another each day

export class Writes {
  constructor(view) {
    this.view = view;
    Object.assign(this, { mode: "words", cuts: [], source: null, asked: 0 });
    const { el, head, stage } = view;
    el.classList.add("mha-writing");
    this.words = element("p", { className: "mha-words", role: "list",
      ariaLabel: "The words: Enter cuts one, arrows go on, Escape puts all back" });
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.ariaHidden = true;
    this.tag = element("span", { className: "mha-tag", ariaHidden: true });
    this.stage = element("div", { className: "mha-flowing" }, this.words, this.svg, this.tag);
    this.answer = element("p", { className: "mha-answer" });
    this.bars = element("ul", { className: "mha-next", ariaLabel: "the likeliest next words" });
    [this.steps, this.lens, this.tee, this.list] = ["mha-steps", "mha-lens", "mha-tee",
      "mha-list"].map((className) => element("div", { className }));
    this.inside = element("p", { className: "mha-lens" });
    this.ask = element("form", { className: "mha-own" });
    this.text = element("p", { className: "mha-text" });
    this.limits = element("p", { className: "mha-lens" });
    const limits = element("details", { className: "mha-inside" }, element("summary",
      { textContent: "What this shows, and what it does not" }), this.limits);
    this.more = element("details", { className: "mha-inside", ontoggle: () => view.draw() }, element("summary",
      { textContent: "More: your own sentence, writing on, cut golf, all 270 heads" }),
      this.list, this.ask, this.text, this.inside, view.range, view.reading, stage);
    const left = element("div", { className: "mha-left" }, this.stage, this.answer, head, this.tee, this.steps,
      this.lens);
    el.querySelector(".mha-more").before(element("div", { className: "mha-top" }, left, this.bars), limits, this.more);
    this.more.append(el.querySelector(".mha-more"));
    const bar = el.closest(".mha-explorer")?.querySelector(".mha-bar");
    if (bar) this.inside.before(bar);
    this.menu = bar?.querySelector(":scope > label > select"); // of a page; ipywidgets keeps its own
    this.own();
    this.listen();
    new ResizeObserver(() => { if (this.wide !== el.clientWidth) this.lay(); }).observe(el);
  }

  // The scene that Python sent: another prompt, or another head of this one.
  filled(scene) {
    const { given } = this, { layer, head } = this.view.positions, moved = this.where && !alike(this.where, [layer,
      head]);
    Object.assign(this, { given: scene, prompts: scene.writes.prompts, where: [layer, head], filling: true });
    const chosen = given?.writes.text !== scene.writes.text || (this.story.typed && this.menu?.value >= 0);
    if (chosen) this.open(scene.writes, this.mode === "golf" ? "golf" : "words");
    else if (moved) this.open(this.story, "head");
    this.filling = false;
    if (!given && scene.writes.begin && this.view.ask) this.run(scene.writes.begin);
    const { mode, mapped: k } = this;
    const values = Float32Array.from({ length: H * N_LAYERS }, (_, i) => this.weight(i % N_LAYERS,
      Math.floor(i / N_LAYERS), k));
    const marks = scene.marks.map((m) => (m.kind === "heatmap" ? { ...m, values, marks: mode === "head" ? [[head,
      layer]] : [] } : m));
    const alt = `what the last word takes from ${this.called(k)}, in each head: ${this.reads ?? this.story.text}`;
    return { ...scene, marks, caption: this.verdict, alt };
  }

  open(story, mode = "words") {
    if (this.story !== story) Object.assign(this, { tried: new Set(), guide: null });
    Object.assign(this, { story, mode, cuts: [], done: null, swapped: false, linked: null });
    if (this.asking !== story) this.asking = null;
    this.text.textContent = "";
    sayIn(this.menu, story.text);
    this.words.replaceChildren(...story.pieces.map((piece, k) => {
      const word = pressable(bare(piece), null, { className: `mha-word${k && !piece.startsWith(" ") ? " mha-tight"
        : ""}`, tabIndex: k ? -1 : 0 });
      word.dataset.k = k;
      return element("span", { role: "listitem" }, word);
    }));
    this.words.lastChild.append(element("span", { className: "mha-dots", textContent: "…", ariaHidden: true }));
    this.words.classList.toggle("mha-long", story.text.length > 44);
    this.render();
  }

  // What the model says with these cuts: { p, top }; null while it is not known.
  now() {
    const { story, cuts, done } = this;
    if (this.swapped) return { p: story.other[1], top: [[story.answer, story.other[1]]] };
    if (!cuts.length) return story.before && { p: story.before[0][1], top: story.before };
    if (done && alike(done.cuts, cuts)) return done;
    if (this.mode === "golf" && story.golf) {
      const n = cuts.reduce((all, cut) => all | (1 << story.tee.findIndex((one) => alike(one, cut))), 0);
      const p = story.golf[n], says = story.said[story.says.charCodeAt(n) - 65];
      return { p, top: says === story.answer ? [[says, p]] : [[says, null], [story.answer, p]] };
    }
    if (cuts.length > 1 || !story.ribbons) return null;
    const [[layer, head, k]] = cuts, alone = (p) => ({ p, top: [[story.answer,
      p]] }); // what the others get is not kept: it hardly changes
    if (layer === "late") return { p: story.left[k], top: story.without[k] };
    if (head === null) return alone(story.layers[layer]);
    if (k === null) return alone(story.heads[layer * H + head]);
    const i = (layer * H + head) * story.pieces.length + k;
    return story.tops[i] ? { p: story.ribbons[i], top: story.tops[i] } : alone(story.ribbons[i]);
  }

  // The sentence and its answer: who listens does not see them above the verdict.
  get reads() { const { text, answer } = this.story; return answer && `${text} … ${glued(answer)}.`; }
  named(k) { return !k && this.swapped ? this.story.other[0] : bare(this.story.pieces[k]); }
  get mapped() { return this.cuts.at(-1)?.[2] ?? this.story.target; } // of which word the map is
  get asks() { return this.mode === "head" && this.guide && alike(this.guide.slice(0, 2), this.where); }
  weight(layer, head, k) {
    const { story: { weights, swapped, pieces } } = this, late = this.swapped && layer >= LATE[0];
    return (late ? swapped : weights)[((layer - late * LATE[0]) * H + head) * pieces.length + k] ?? 0;
  }
  share(k) {
    const all = this.late.flatMap((layer) => Array.from({ length: H }, (_, head) => this.weight(layer, head, k)));
    return all.reduce((a, b) => a + b) / all.length;
  }

  // The layers whose ribbons are drawn together: of those that have come the late ones, or the last.
  get late() {
    const { come = N_LAYERS } = this.story, some = LATE.filter((l) => l < come);
    return some.length ? some : [Math.max(0, come - 1)];
  }

  // ---- a model to ask: the kernel, or the one that the page has fetched ----

  own() {
    const offer = window.mhaWriter, { view, ask } = this;
    if (!offer && !view.ask) return ask.append("Your own sentence: on the course's site, or in JupyterLab.");
    const field = (made, name) => {
      made.setAttribute("aria-label", name);
      return made;
    };
    this.input = field(element("input", { type: "text", placeholder: "your own sentence", autocomplete: "off" }),
      "your own sentence");
    this.heat = field(element("select", {}, ...[0, 0.5, 0.8, 1, 1.5].map((t) => new Option(t ? `temperature ${t}`
      : "the likeliest", t))), "temperature");
    this.seed = field(element("input", { type: "number", value: 0, min: 0, max: 9999 }), "seed of the draw");
    this.heard = element("span"); // the verdict alone is announced
    if (offer) this.say(`The model comes first: ${million(offer.first)} MB until its first ribbons, ` +
      `${million(offer.all)} in all. Your sentence is not sent.`);
    const typed = () => this.input.value.trim(), write = () => {
      const text = typed() || this.story.text, cuts = text === this.story.text ? this.cuts : [];
      this.run(text, cuts, { write: MORE, temperature: Number(this.heat.value), seed: Number(this.seed.value) });
    };
    ask.replaceChildren(this.input, pressable("Read it", null, { type: "submit" }), pressable("Write on", write),
      this.heat, element("label", {}, "seed ", this.seed), this.heard);
    ask.onsubmit = (e) => {
      e.preventDefault();
      if (typed()) this.run(typed());
    };
  }

  // Asks for a prompt with cuts; what is heard becomes the story, or what these cuts do. A word is cut in all heads of
  // the late layers.
  async run(text, cuts = [], more = {}) {
    const story = text === this.story.text ? this.story : { text, typed: true, tops: {}, was: {} };
    const plain = cuts.flatMap(([layer, head, k]) => (layer === "late" ? LATE.map((l) => [l, null, k]) : [[layer, head,
      k]]));
    Object.assign(this, { asking: story, failed: "", ones: [] });
    this.text.textContent = "";
    try {
      this.source ??= await window.mhaWriter?.open() ?? this.kernel();
    } catch (error) {
      return this.hear({ kind: "error", text: error.message }, story, cuts);
    }
    const asked = { prompt: text, cuts: plain, write: 0, temperature: 0, seed: 0, survey: null, ...more };
    this.source.ask(asked, (told) => { if (this.asking === story) this.hear(told, story, cuts); });
  }

  // A kernel answers all it was asked, one after the other.
  kernel() {
    let turn = 0;
    return { ask: (request, hear) => {
      const own = turn += 1;
      this.told = ({ turn, ...told }) => { if (turn === own) hear(told); };
      this.view.ask({ ...request, turn });
    } };
  }

  hear(told, story, cuts) {
    const { kind, words } = told;
    if (kind === "progress" && !this.comes) this.view.say("The model is coming.");
    if (kind === "progress") this.say(this.comes = `${told.what}: ${million(told.have)} of ${million(told.of)} MB`);
    if (kind === "error") this.say(Object.assign(this, { failed: told.text, ones: [] }).failed);
    if (this.linked || (kind === "error" && story === this.story)) this.render();
    else if (kind === "error") this.view.say(told.text);
    if (kind === "words" && !story.pieces) {
      const T = words.length, weights = new Float32Array(N_LAYERS * H * T);
      this.open(Object.assign(story, { pieces: words, weights, come: 0, target: Math.max(0, T - 2) }));
      this.see();
    }
    if (kind === "ribbons" && story.come <= told.layer) {
      story.weights.set(told.weights, told.layer * H * story.pieces.length);
      story.come = told.layer + 1;
      this.frame ??= requestAnimationFrame(() => { this.frame = null; this.render(); });
    }
    if (kind === "next") {
      const top = (key) => [...words].sort((a, b) => b[key] - a[key]).slice(0, 5).map((one) => [one.word, one[key]]);
      story.before ??= top("was");
      story.answer ??= story.before[0][0];
      for (const { word, was } of words) story.was[word] ??= was;
      const { p } = words.find(({ word }) => word === story.answer) ?? { p: 0 };
      if (cuts.length) this.done = { cuts, p, top: top("p") };
      this.say("");
      this.render();
    }
    if (kind === "written") {
      if (!this.text.firstChild) this.text.append(story.text, element("b"));
      this.text.lastChild.textContent += told.word;
    }
    if (kind === "one" && this.ones.push(told) % 40 === 1) this.render();
    if (kind === "done") {
      if (this.ones.length) this.teeOff(story, this.ones);
      else this.tellPage();
      if (this.text.firstChild) this.view.say(this.text.textContent);
      this.restore?.();
    }
  }
  say(text) { if (this.heard) this.heard.textContent = text; }

  // A link holds somebody's own sentence, and cuts, which `restore` makes once the model has read it.
  wait(linked, restore) {
    Object.assign(this, { linked, restore });
    if (this.input) this.input.value = linked.text;
    this.render();
  }

  sources() {
    const { story, mode, where: [layer, head] } = this;
    if (mode === "golf") return story.tee.map((cut) => ({ cut, k: cut[2], w: this.weight(...cut),
      says: `“${this.named(cut[2])}”, layer ${cut[0]}, head ${cut[1]}` }));
    return story.pieces.map((_, k) => {
      const cut = mode === "head" ? [layer, head, k] : ["late", null, k];
      return { cut, k, w: mode === "head" ? this.weight(layer, head, k) : this.share(k), says: `“${this.named(k)}”` };
    });
  }

  // Ribbons from below each word into the next one, on one scale: a row's whole weight is `room` wide.
  lay() {
    const { stage, words, view: { el, theme } } = this, box = stage.getBoundingClientRect();
    if (!this.story || !box.width) return;
    this.wide = el.clientWidth;
    const high = words.offsetHeight, gap = box.width > 520 ? 150 : 112, room = Math.min(240, 0.55 * box.width),
      list = this.sources();
    const total = Math.max(1, list.reduce((all, { w }) => all + w, 0)),
      chips = [...words.querySelectorAll(".mha-word")].map((chip) => chip.getBoundingClientRect());
    stage.style.height = `${high + gap}px`; // written once all is read: the page is laid out once
    for (const one of list) {
      const chip = chips[one.k], twins = list.filter(({ k }) => k === one.k),
        each = (chip.width - 4) / twins.length;
      one.end = Math.max(2, (room * one.w) / total);
      one.size = Math.max(2, Math.min(each - (twins.length > 1 ? 2 : 0), one.end));
      one.a = chip.left - box.left + 2 + each * (twins.indexOf(one) + 0.5);
      [one.top, one.bottom] = [chip.bottom - box.top, high + gap];
    }
    const sorted = [...list].sort((p, q) => p.a - q.a), all = sorted.reduce((sum, { end }) => sum + end + 2, -2);
    let x = box.width / 2 - all / 2;
    for (const one of sorted) { one.b = x + one.end / 2; x += one.end + 2; }
    this.ribbons = list.sort((p, q) => q.end - p.end); // thin ones on top
    this.svg.innerHTML = this.ribbons.map((r) => {
      const edge = (side) => curve(theme.way, r.top, r.bottom, r.a + (side * r.size) / 2, r.b + (side * r.end) / 2);
      r.edges = [...edge(-1), ...edge(1).reverse()];
      return `<path d="M${r.edges.map(([y, x]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}Z"/>`;
    }).join("");
    this.point(null);
    this.strike();
  }

  // The ribbon or the word at a place of the stage: what is drawn is what is hit, and of ribbons the nearest.
  hit(x, y) {
    const { way } = this.view.theme, chips = [...this.words.querySelectorAll(".mha-word")],
      box = this.stage.getBoundingClientRect();
    const k = chips.findIndex((chip) => {
      const { left, right, top, bottom } = chip.getBoundingClientRect();
      return x >= left - box.left && x < right - box.left && y >= top - box.top && y < bottom - box.top;
    });
    if (k >= 0) return this.ribbons.filter((r) => r.k === k).sort((p, q) => Math.abs(p.a - x) - Math.abs(q.a - x))[0];
    const far = this.ribbons.map((r) => {
      const along = (y - r.top) / (r.bottom - r.top), outside = Math.max(0, r.top - y, y - r.bottom);
      return Math.hypot(outside, away(way, r, Math.min(1, Math.max(0, along)), x));
    });
    const nearest = Math.min(...far);
    return nearest <= FINGER ? this.ribbons[far.lastIndexOf(nearest)] : null;
  }

  point(ribbon) {
    [...this.svg.children].forEach((path, i) => path.classList.toggle("mha-near", this.ribbons[i] === ribbon));
    this.words.querySelectorAll(".mha-word").forEach((word, k) => word.classList.toggle("mha-near", ribbon?.k === k));
    this.tag.hidden = !ribbon;
    if (!ribbon) return;
    this.tag.textContent = `${this.isCut(ribbon.cut) ? "mend" : "cut"} ${ribbon.says}: ${wholePercent(ribbon.w)}`;
    const half = this.tag.offsetWidth / 2, [y, x] = curve(this.view.theme.way, ribbon.top, ribbon.bottom, ribbon.a,
      ribbon.b)[14];
    this.tag.style.left = `${Math.max(half, Math.min(this.stage.clientWidth - half, x))}px`;
    this.tag.style.top = `${y}px`;
  }

  isCut(cut) { return this.cuts.some((one) => alike(one, cut) || (one[0] === cut[0] && (one[1] === null
    || (one[1] === cut[1] && one[2] === null)) && one[0] !== "late")); }
  strike() {
    [...this.svg.children].forEach((path, i) => path.classList.toggle("mha-cut-off", this.isCut(this.ribbons[i].cut)));
    this.words.querySelectorAll(".mha-word").forEach((word, k) => {
      const own = this.ribbons.filter((one) => one.k === k), [first] = own;
      word.ariaPressed = own.some(({ cut }) => this.isCut(cut));
      word.ariaLabel = heard(`“${this.named(k)}”, ${own.length === 1 ? `${wholePercent(first.w)} taken`
        : `${own.length || "no"} ribbons`}`);
    });
  }

  render() {
    const { story, view, cuts } = this, now = this.now();
    if (!now && cuts.length && this.asked !== String(cuts)) {
      this.asked = String(cuts);
      if (this.source || view.ask) this.run(story.text, cuts);
    }
    const told = now ?? { p: null, top: story.before ?? [["…", null]] }, [[says]] = told.top;
    const changed = Boolean(story.before) && says !== story.answer;
    view.el.classList.toggle("mha-changed", changed);
    this.answer.textContent = glued(says);
    this.words.querySelector(".mha-word").textContent = this.named(0);
    const rows = told.top.filter(([, p]) => p !== null).slice(0, 5);
    if (!rows.some(([word]) => word === story.answer) && told.p !== null) rows.splice(4, 1, [story.answer, told.p]);
    this.bars.replaceChildren(...rows.map(([word, p]) => {
      const was = (cuts.length || this.swapped) && story.was[word], bar = element("i"), old = element("u");
      bar.style.width = `${100 * p}%`;
      old.style.left = `${100 * was}%`;
      const track = element("span", { className: "mha-track", ariaHidden: true }, bar, ...(was === undefined
        || was === false || was === 0 ? [] : [old]));
      const before = was ? element("span", { className: "mha-said", textContent: `, before ${wholePercent(was)}` })
        : "";
      return element("li", { className: word === story.answer ? "" : "mha-other" }, element("b",
        { textContent: glued(word) }), track, element("span", { textContent: wholePercent(p).replace("under ",
        "<") }), before);
    }));
    this.lay();
    this.tell(now, says, changed);
  }

  // ---- what is said: one sentence, and one next step ----

  called(k) {
    const { pieces } = this.story, name = bare(pieces[k]), twins = pieces.flatMap((piece, i) =>
      (bare(piece) === name ? [i] : []));
    return `${twins.length > 1 ? `${["the first", "the second", "the third", "the fourth"][twins.indexOf(k)]} `
      : ""}“${name}”`;
  }

  moved(to) {
    const from = this.story.before[0][1], answer = `“${bare(this.story.answer)}”`, all = [from, to].map(wholePercent);
    if (all[0] === all[1]) return `${answer} stays at ${all[0]}`;
    const moves = Math.abs(from - to) < 0.01 ? "hardly moves," : to < from ? "falls" : "rises";
    return `${answer} ${moves} from ${all.join(" to ")}`;
  }

  tell(now, says, changed) {
    const { story, cuts, mode, where: [layer, head] = [] } = this, answer = `“${bare(story.answer)}”`, steps = [],
      n = cuts.length;
    const back = [n > 1 ? "Put all back" : "Put it back", () => this.set([])],
      next = [`Next: ${this.shortened()} …`, () => this.choose(1)];
    const put = (sentence, ...more) => { this.verdict = sentence; steps.push(...more); };
    const of = (cut) => this.weight(...cut), last = cuts.at(-1), [first] = story.before ?? [], lost = now
      ? first[1] - now.p : 0;
    if (this.failed && (this.linked || !now)) {
      put(this.failed, ["Try once more", () => this.run(...(this.linked ? [this.linked.text] : [story.text, cuts]))]);
    } else if (this.linked) {
      const { text, cuts: held } = this.linked, reads = window.mhaWriter, long = text.length > 60;
      const cut = held?.length ? `, with ${held.length} ${held.length === 1 ? "cut" : "cuts"}` : "";
      put(`This link holds “${long ? `${text.slice(0, 56)} …` : text}”${cut}. It waits for the model${!reads
        ? ", which this page does not have" : this.comes ? `, ${this.comes}` : ""}.`, ...(reads && !this.comes
        ? [[`Get the model, ${million(reads.all)} MB`, () => this.run(text)]] : []));
    } else if (this.ones?.length) {
      put(`Golf begins when every wide ribbon was cut alone: ${this.ones.length} so far.`);
    } else if (!story.before) {
      put(`The model reads your sentence: ${story.come} of its ${N_LAYERS} layers.`);
    } else if (!now) {
      const model = this.source || this.view.ask;
      put(model ? "The model runs …" : "Two cuts at once are not stored here: they need the model.", back);
    } else if (mode === "golf") {
      const par = story.par?.length, of_par = !par ? "" : n < par ? ": under par" : n === par ? ": par"
        : `: ${n - par} over par`;
      if (!n) put(`Change the answer with the fewest cuts. ${par ? `Par is ${par}: the fewest that a search found.`
        : "Nobody has searched for the fewest here."}`, ["Back to words", () => this.open(story)]);
      else if (changed) put(`It says “${glued(says)}” after ${n} ${n === 1 ? "cut" : "cuts"}${of_par}.`, next,
        ["Copy the link", () => this.copy()], back);
      else put(`${n} ${n === 1 ? "cut" : "cuts"}: still ${answer}, ${wholePercent(now.p)}.`, back);
    } else if (this.swapped) {
      put(`Now “${story.other[0]}” stands where “${bare(story.pieces[0])}” was: still ${answer}, ` +
        `${wholePercent(now.p)}. So the place matters, not the word. Such a place is called a sink.`, next);
    } else if (!n && mode === "words") {
      put(`It is ${wholePercent(first[1])} sure. Which word does it need? Press one: it is cut.`, ["Show me", () =>
        this.press(["late", null, story.target])]);
    } else if (!n) {
      put(`Layer ${layer}, head ${head}: one of the 270 heads with which it looks. Press ${this.asks
        ? `the ribbon of ${this.called(this.guide[2])}` : "a ribbon"}.`, ["Back to words", () => this.open(story)]);
    } else if (last[0] === "late" && n === 1) {
      const word = this.called(last[2]);
      this.tried.add(last[2]);
      if (changed) put(`Without ${word} it says “${glued(says)}”: ${this.moved(now.p)}.`);
      else if (Math.abs(lost) > 0.05) put(`Without ${word} it is ${lost < 0 ? "surer" : lost > 0.15 ? "less sure"
        : "a little less sure"}: ${this.moved(now.p)}.`);
      else put(`Without ${word} it still says ${answer}, ${wholePercent(now.p)}: that word was hardly needed.`);
      if (!last[2] && lost > 0.15 && story.other) steps.push([`Put “${story.other[0]}” in its place`,
        () => { this.cuts = []; this.swapped = true; this.render(); }]);
      else if (story.ribbons && (changed || lost > 0.15)) steps.push(["Is one ribbon enough?", () =>
        this.show(this.strongest(last[2]))]);
      else if (this.tried.size > 1 && last[2] !== story.target) steps.push([`Try ${this.called(story.target)}`,
        () => this.set([["late", null, story.target]])]);
      steps.push(back);
    } else if (n === 1) {
      const [l, h, k] = last, what = h === null ? `layer ${l}` : k === null ? `layer ${l}, head ${h}` : "",
        weight = k === null ? 0 : of(last);
      const wide = wholePercent(weight), less = what ? `Without ${what}`
        : `One ribbon less (layer ${l}, head ${h}, ${wide} wide), and`;
      if (!what && Math.abs(lost) < 0.01) put(`${less} nothing changes: still ${answer}, ${wholePercent(now.p)}.${weight
        > 0.25 ? " A wide ribbon need not be a strong one." : ""}`);
      else put(`${less} ${changed ? `it says “${glued(says)}”: ` : ""}${this.moved(now.p)}.`);
      steps.push(story.wide && Math.abs(lost) >= 0.01 ? ["Are wide ribbons strong?", () => this.show(story.wide)]
        : next, back);
    } else put(`With ${n} cuts ${changed ? `it says “${glued(says)}”: ` : ""}${this.moved(now.p)}.`, back);
    const had = refill(this.steps, ...steps.map(([label, act], i) => pressable(label, act, { className: i
      || /^(Put it|Back to) /.test(label) ? "" : "mha-main" })));
    if (had && this.asks && !n) this.words.children[this.guide[2]].firstChild.focus({ preventScroll: true });
    const { late } = this, end = `“${bare(story.pieces.at(-1))}”, the last word,`, where = mode === "words"
      ? late.length === LATE.length ? "in the last third of the model"
        : `in ${late.length > 1 ? `layers 20 to ${late.at(-1)}` : `layer ${late}`}, all nine heads`
      : `in layer ${layer}, head ${head}, one of 270`;
    const seen = mode === "golf" ? `Ten ribbons of ${end} each in one layer and head.`
      : `Ribbons: what ${end} takes from each word ${where}.`;
    this.lens.textContent = `${seen} A cut sets that to 0; the rest stays.${n
      ? " Thin marks: before the cut." : ""}`;
    this.limits.textContent = this.limit();
    this.inside.textContent = `The map: how much the last word takes from ${this.called(this.mapped)} in each of the ` +
      `270 heads. Press a square, or move the sliders, to see its ribbons.`;
    refill(this.tee, ...(mode === "golf" ? story.tee : []).map((cut) => {
      const made = pressable(bare(story.pieces[cut[2]]), () => this.press(cut),
        { title: `weight ${wholePercent(of(cut))}` });
      made.append(element("small", { textContent: `layer ${cut[0]}, head ${cut[1]}` }));
      made.setAttribute("aria-pressed", this.isCut(cut));
      return made;
    }));
    const chose = refill(this.list, ...(mode === "golf" ? []
      : [pressable("Cut golf: today’s sentence", () => this.golf())]),
    ...(mode !== "golf" && story.typed && story.before ? [pressable("Cut golf: this sentence", () => this.survey())]
      : []), ...(mode === "head" ? ["head", "layer"].map((one) => pressable(`cut this ${one}`, () => {
        this.press([layer, one === "head" ? head : null, null]);
        this.see();
      })) : []));
    if (chose && mode === "golf") this.tee.firstChild.focus({ preventScroll: true });
    if (!this.filling) this.view.show({ ...this.given });
  }

  // What may be said of it, with this prompt's own count of wide ribbons.
  limit() {
    const { story } = this, T = story.pieces.length;
    if (!story.before) return "";
    const answer = `“${bare(story.answer)}”`, p = story.before[0][1];
    const wide = (story.ribbons ? [...story.weights.keys()] : []).filter((i) => story.weights[i] > 0.3 && i % T > 0
      && i % T < T - 1);
    const idle = wide.filter((i) => Math.abs(story.ribbons[i] - p) < 0.01).length;
    const count = wide.length ? ` Wide is not strong: of the ${wide.length} single ribbons here wider than 30%, to ` +
      `neither the first nor the last word, ${idle} move ${answer} by less than a point.` : "";
    return `It shows what one small model (SmolLM2-135M) loses on this one sentence when the last word may not take ` +
      `from another. It does not show what a head is for, or what larger models do. An answer is one piece, maybe ` +
      `the beginning of a word or a name. A word is cut in layers 20 to 29, all nine heads, and only in the last ` +
      `word’s row; the weights left are not made to add up to 1 again, which would give other numbers.${count}`;
  }

  shortened() {
    const { prompts = [], story } = this, text = prompts[(prompts.indexOf(story.text) + 1) % prompts.length] ?? "";
    return text.length > 28 ? text.slice(0, text.lastIndexOf(" ", 28)) : text;
  }

  listen() {
    const place = (e) => { const box = this.stage.getBoundingClientRect(); return [e.clientX - box.left,
      e.clientY - box.top]; };
    let pressed = null; // by the press itself: of a tap a browser may move the click to a button near it
    this.stage.addEventListener("pointermove", (e) => e.pointerType === "mouse" && this.point(this.hit(...place(e))));
    this.stage.addEventListener("pointerdown", (e) => this.point(pressed = this.hit(...place(e)))); // a finger sees it
    this.stage.addEventListener("pointerleave", () => this.point(null));
    this.stage.addEventListener("click", (e) => {
      const by = e.detail ? pressed : this.ribbons.find(({ k }) =>
        k === Number(e.target.closest(".mha-word")?.dataset.k));
      if (by) this.press(by.cut);
    });
    this.words.addEventListener("keydown", (e) => {
      const all = [...this.words.querySelectorAll(".mha-word")], i = all.indexOf(document.activeElement);
      if (e.key === "Escape") this.set([]);
      const j = { ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0,
        End: all.length - 1 }[e.key];
      if (!all[j]) return;
      e.preventDefault();
      e.stopPropagation();
      all[j].focus();
    });
    this.words.addEventListener("focusin", ({ target }) => {
      for (const word of this.words.querySelectorAll(".mha-word")) word.tabIndex = word === target ? 0 : -1;
      if (target.matches(":focus-visible")) this.point(this.ribbons.find(({ k }) => k === Number(target.dataset.k)));
    });
    this.words.addEventListener("focusout", () => this.point(null));
  }

  press(cut) {
    const rest = this.cuts.filter((one) => !alike(one, cut)), many = this.mode === "golf" || this.source
      || this.view.ask;
    this.set(rest.length < this.cuts.length ? rest : many ? [...rest, cut] : [cut]);
  }

  set(cuts) {
    Object.assign(this, { cuts, swapped: false, asked: null, linked: null });
    this.text.textContent = "";
    this.render();
    this.tellPage();
  }

  // Its address holds the state.
  tellPage() { this.view.canvas.dispatchEvent(new CustomEvent("mha-state", { detail: this.state, bubbles: true })); }

  // The ribbon of a word without which the answer falls furthest.
  strongest(k) {
    const { ribbons, pieces: { length: T } } = this.story, of = [...ribbons.keys()].filter((i) => i % T === k);
    const i = (of.reduce((a, b) => (ribbons[b] < ribbons[a] ? b : a)) - k) / T;
    return [Math.floor(i / H), i % H, k];
  }

  // Asks for the cut of one ribbon, in its own head.
  show([layer, head, k = this.mapped]) {
    Object.assign(this, { mode: "head", cuts: [], swapped: false, guide: [layer, head, k] });
    ["layer", "head"].forEach((name, i) => this.view.choose(name, this.guide[i]));
    this.render();
    this.see();
  }

  // What was pressed below the picture shows there.
  see() { this.stage.scrollIntoView({ block: "nearest" }); }

  choose(by) {
    const { prompts, story } = this, at = prompts.indexOf(story.text), to = (Math.max(0,
      at) + by + prompts.length) % prompts.length;
    if (at < 0 && prompts[to] === this.given.writes.text) this.open(this.given.writes);
    else this.view.choose("prompt", to);
    this.see();
  }

  // Another prompt each day.
  golf() {
    this.mode = "golf";
    if (today(this.prompts.length) === this.prompts.indexOf(this.story.text)) this.open(this.story, "golf");
    else this.view.choose("prompt", today(this.prompts.length));
    this.see();
  }

  survey() { this.run(this.story.text, [], { survey: 0.05 }); }

  // Golf with a prompt of one's own: the six ribbons that alone lower its answer most, and four wide ones.
  teeOff(story, ones) {
    const low = [...ones].sort((a, b) => a.p - b.p).slice(0, 6);
    const wide = ones.filter((one) => !low.includes(one)).sort((a, b) => b.weight - a.weight).slice(0, 4);
    this.ones = [];
    story.tee = [...low, ...wide].map(({ cut }) => cut).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.open(story, "golf");
  }

  async copy() {
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    this.view.say(copied ? "The link is copied: it holds your cuts." : "Copy this page's address: it holds your cuts.");
  }

  get state() { return { text: this.story.text, mode: this.mode, cuts: this.cuts }; }
  set state({ mode, cuts }) {
    this.open(this.story, ["words", "head", "golf"].includes(mode) ? mode : "words");
    this.set(cuts);
  }

  // Whether such cuts can be made here, and now: a link may hold anything, and golf has its ribbons first.
  knows({ mode, cuts }) {
    if (mode === "golf" && !this.story.tee) return void this.survey();
    const { story } = this, within = (v, end) => v === null || (Number.isInteger(v) && v >= 0 && v < end);
    const fits = (cut) => cut?.length === 3 && (cut[0] === "late" || (cut[0] !== null && within(cut[0], N_LAYERS)))
      && within(cut[1], H) && within(cut[2], story.pieces.length);
    return Array.isArray(cuts) && cuts.every(fits);
  }
}
