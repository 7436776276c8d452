// Controls over a view. In a notebook it is an anywidget; a saved page calls `mount`.

// ---- states --------------------------------------------------------------------------------------------

// The arrays of mha_lesson.pictures.states.packed.
export function arraysOf(sizes, bytes) {
  let at = 0;
  return sizes.map(([n, wide, scale]) => {
    const numbers = new Int32Array(n), empty = 8 * (4 - wide);
    for (let k = 0; k < wide; k++) for (let i = 0; i < n; i++) numbers[i] |= bytes[at++] << (empty + 8 * k);
    return scale ? Float32Array.from(numbers, (v) => (v >> empty) / scale) : new Float32Array(numbers.buffer);
  });
}

// A scene with its arrays in place of their numbers.
function fill(scene, arrays) {
  const of = (number) => (number === null ? null : arrays[number]), { flow } = scene;
  const marks = scene.marks.map((m) => {
    if (m.kind === "arrows") return { ...m, steps: [...of(m.steps)] };
    return m.kind === "heatmap" || m.kind === "ribbons" ? { ...m, values: of(m.values), blocked: of(m.blocked) } : m;
  });
  return { ...scene, marks, flow: flow && { ...flow, writes: of(flow.writes), bias: of(flow.bias) } };
}

// The rows of mha_lesson.pictures.states.columns.
export function rowsOf({ of, tables }) {
  const next = tables.map((table) => ({ names: Object.keys(table), at: 0 }));
  return of.map((t) => {
    const { names, at } = next[t], row = {};
    for (const name of names) row[name] = tables[t][name][at];
    next[t].at++;
    return row;
  });
}

// What mha_lesson.pictures.states.parcel made: states, their marks and arrays, and the way to each.
export async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer(), [size] = new Uint32Array(buffer, 0, 1);
  const stored = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const [marks, states] = [stored.marks, stored.states].map(rowsOf);
  return { ...stored, marks, states, arrays: arraysOf(stored.arrays, new Uint8Array(buffer, 4 + size)) };
}

// Where a control stands when so many positions are left: mha_lesson.pictures.states.within.
const within = ({ input }, place, count) => (place < count ? place : input === "range" ? count - 1 : 0);

// The nodes on the way to the state at these positions.
function way({ tree, controls }, at) {
  const nodes = [tree];
  at.forEach((place, k) => {
    const node = nodes.at(-1);
    nodes.push(node && place >= 0 ? node[within(controls[k], place, node.length)] : null);
  });
  return nodes;
}

// The scene at these positions, in a room so wide; null where the parcel does not hold it.
export function stateAt(stored, at, width) {
  const state = stored.states[way(stored, at).at(-1)];
  if (!state) return null;
  const room = stored.rooms.findIndex((r) => r <= width), layout = state.layouts.at(room);
  const [wide, high, ...steps] = stored.layouts[layout];
  let mark = 0;
  const scene = { ...state, width: wide, height: high, marks: steps.map((step) => stored.marks[mark += step]) };
  return fill(scene, state.arrays.map((i) => stored.arrays[i]));
}

// ---- controls ------------------------------------------------------------------------------------------

// The controls of an explorer in their bar, each where the reader wants it among the positions that others leave.
// `moved` hears of every wish; who goes to a slider's end wants the end, wherever it will be.
class Deck {
  constructor(bar, { controls, play }, wishes, moved) {
    this.controls = controls;
    this.moved = moved;
    this.want(wishes);
    bar.className = "mha-bar mha-controls";
    this.inputs = controls.map((c, k) => {
      const label = bar.appendChild(document.createElement("label")), now = document.createElement("span");
      const input = document.createElement(c.input === "select" ? "select" : "input");
      if (c.input !== "select") Object.assign(input, { type: c.input, min: 0 });
      input.setAttribute("aria-label", c.name); // of all that the label holds
      input.setAttribute("data-lm-suppress-shortcuts", "true"); // else JupyterLab would take its keys
      now.style.minWidth = `${Math.max(...c.said.map((word) => word.length))}ch`; // its neighbours stay where they are
      label.append(c.name, input, ...(c.input === "range" ? [now] : []), c.note ?? "");
      const place = () => ({ checkbox: Number(input.checked), text: input.value }[c.input] ?? Number(input.value));
      input.addEventListener(c.input === "text" ? "change" : "input", () => this.set(k, place()));
      if (c.input === "text") input.addEventListener("keydown", (e) => { if (e.key === "Enter") this.set(k, place()); }); // JupyterLab takes it
      return { label, input, now };
    });
    if (play) bar.append(player(this, controls.findIndex((c) => c.key === play)));
  }

  want(wishes) { this.wishes = wishes.map((wish) => wish ?? Infinity); }

  // Puts each control where it stands among these positions, of which the words are given.
  stand(left) {
    this.left = left;
    this.controls.forEach((c, k) => {
      const { label, input, now } = this.inputs[k], said = left[k], place = this.at(k);
      label.hidden = said.length === 1 && c.input !== "text";
      if (c.input === "checkbox") input.checked = place === 1;
      else if (c.input === "text") input.value = document.activeElement === input ? input.value : this.wishes[k];
      else {
        if (c.input === "range") input.max = said.length - 1;
        else if (input.mhaSaid !== said.join()) input.replaceChildren(...said.map((word, i) => new Option(word, i)));
        input.mhaSaid = said.join();
        input.value = place;
        now.textContent = said[place];
        if (c.input === "range") input.setAttribute("aria-valuetext", spoken(said[place]));
      }
    });
  }

  at(k) { return within(this.controls[k], this.wishes[k], this.left[k].length); }

  set(k, place) {
    const { input } = this.controls[k];
    this.wishes[k] = input === "range" && place === this.left[k].length - 1 ? Infinity : place;
    this.moved();
  }

  choose(key, place) { this.set(this.controls.findIndex((c) => c.key === key), place); }
}

// What a slider says, with raised and lowered letters as plain ones: W O for Wᴼ.
const spoken = (said) => said.replace(/\p{Lm}/gu, (letter) => ` ${letter.normalize("NFKC")}`);

// A button that moves one control through its positions, once; whoever moves the control meanwhile has stopped it.
function player(deck, k) {
  const button = document.createElement("button");
  let timer = 0, left = 0;
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "▶ Play"; };
  const last = () => deck.left[k].length - 1;
  const go = (place) => { deck.set(k, place); left = deck.at(k); };
  const step = () => { if (button.isConnected && deck.at(k) < last() && deck.at(k) === left) go(left + 1); else stop(); };
  button.addEventListener("click", () => {
    if (timer) return stop();
    go(deck.at(k) === last() ? 0 : deck.at(k));
    timer = setInterval(step, 160);
    button.textContent = "❚❚ Pause";
  });
  button.setAttribute("data-lm-suppress-shortcuts", "true");
  stop();
  return button;
}

// A bar and a picture below it.
function explorer(el) {
  const parts = ["div", "div"].map((kind) => document.createElement(kind));
  el.classList.add("mha-explorer");
  el.replaceChildren(...parts);
  return parts;
}

// ---- the widget --------------------------------------------------------------------------------------

const bytesIn = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

function render({ model, el }) {
  const off = [], listen = (event, f) => { model.on(event, f); off.push(() => model.off(event, f)); };
  const [bar, stage] = explorer(el), view = new View(stage, model.get("look"), (...where) => deck.choose(...where));
  let stored = null, room = 860, timer = 0, told = null, gone = false;
  const deck = new Deck(bar, { controls: [], ...model.get("deck") }, model.get("wishes"), () => wanted());
  bar.append(view.head);
  // The kernel hears of a control at once, unless the browser has the picture: then once the control rests.
  const tell = () => {
    const wishes = deck.wishes.map((wish) => (wish === Infinity ? null : wish));
    told = JSON.stringify(wishes);
    model.set("wishes", wishes);
    model.save_changes();
  };
  // What the kernel has sent beforehand for where the reader wants the controls; null where it has not.
  const known = () => {
    const at = deck.wishes.map((wish, k) => (deck.controls[k].input === "text" ? stored?.controls[k].said.indexOf(wish) : wish));
    const nodes = stored ? way(stored, at) : [], now = model.get("deck").controls ?? [];
    deck.stand(now.map(({ said }, k) => (nodes[k] ? stored.controls[k].said.slice(0, nodes[k].length) : said)));
    return stored?.rooms[0] === model.get("room") ? stateAt(stored, at, room) : null;
  };
  const moved = () => {
    const scene = known();
    if (scene) { view.fail(""); view.show(scene); }
    return scene;
  };
  const wanted = () => {
    clearTimeout(timer);
    if (moved()) timer = setTimeout(tell, 100);
    else tell();
  };
  const answered = () => view.show(known() ?? fill(model.get("scene"), arraysOf(model.get("scene").arrays, bytesIn(model.get("data")))));
  const fail = () => view.fail(model.get("error"));
  const arrive = async () => {
    if (!model.get("stored").byteLength) return;
    view.stored = stored = await unpack(bytesIn(model.get("stored")));
    moved();
  };
  const resize = new ResizeObserver(() => {
    const now = Math.floor((el.clientWidth - 8) / 20) * 20;
    view.tallest = 0;
    if (now <= 0 || now === room) return;
    room = now;
    const wanted = Math.min(860, Math.max(320, now));
    if (wanted !== model.get("room")) { model.set("room", wanted); model.save_changes(); }
    view.again();
  });
  requestAnimationFrame(() => { // the element is in the page, and has its theme, one frame from now
    if (gone) return;
    listen("change:scene", answered);
    listen("change:stored", arrive);
    listen("change:deck", known);
    listen("change:error", fail);
    listen("change:wishes", () => { // by code
      if (JSON.stringify(model.get("wishes")) === told) return;
      deck.want(model.get("wishes"));
      moved();
    });
    answered();
    arrive();
    fail();
    resize.observe(el);
  });
  return () => { gone = true; off.forEach((f) => f()); resize.disconnect(); view.remove(); };
}

// ---- a saved page ------------------------------------------------------------------------------------

const NOTE = "To type your own, open the notebook in JupyterLab: that needs a kernel.";

export async function mount(el, look, bytes) {
  const stored = await unpack(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)));
  const [bar, stage] = explorer(el), view = new View(stage, look, (...where) => deck.choose(...where));
  const controls = stored.controls.map((c) => (c.input === "text" ? { ...c, input: "select", note: NOTE } : c));
  const wishes = stored.wishes.map((wish, k) => (typeof wish === "string" ? controls[k].said.indexOf(wish) : wish));
  const go = () => {
    const nodes = way(stored, deck.wishes);
    deck.stand(controls.map(({ said }, k) => said.slice(0, nodes[k].length)));
    view.show(stateAt(stored, deck.wishes, stage.clientWidth));
  };
  const deck = new Deck(bar, { ...stored, controls }, wishes, go);
  go();
  controls.forEach(({ key }, k) => { if (key in el.dataset) deck.set(k, Number(el.dataset[key])); });
  bar.append(view.head);
  let width = 0;
  new ResizeObserver(() => { // also the first time
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    view.tallest = 0;
    go();
  }).observe(stage);
}

export default { render };
