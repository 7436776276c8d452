// Controls over a view. In a notebook it is an anywidget; a saved page calls `mount`.

// What a slider says, with raised and lowered letters as plain ones: W O for Wᴼ.
const spoken = (said) => said.replace(/\p{Lm}/gu, (letter) => ` ${letter.normalize("NFKC")}`);

// ---- names for ipywidgets' sliders, which have none -----------------------------------------------

// and a way to keep the keys that JupyterLab would take from a focused control (b adds a cell).
function nameSliders(root, controls) {
  for (const control of root.querySelectorAll("input, select, [role=slider], [contenteditable]"))
    control.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const slider of root.querySelectorAll(".widget-slider, .widget-hslider, .widget-inline-hbox")) {
    const name = slider.querySelector(".widget-label")?.textContent.trim();
    const readout = slider.querySelector(".widget-readout");
    // A slider over a list takes no typing, though ipywidgets lets its readout be edited, after every move anew.
    const k = [...slider.parentElement.children].indexOf(slider);
    if (readout?.isContentEditable && controls[k]?.indexed) readout.contentEditable = "false";
    for (const handle of slider.querySelectorAll("[role=slider]")) {
      if (name && handle.getAttribute("aria-label") !== name) handle.setAttribute("aria-label", name);
      const said = readout && spoken(readout.textContent.trim());
      if (said && handle.getAttribute("aria-valuetext") !== said) handle.setAttribute("aria-valuetext", said);
    }
    if (name && readout?.isContentEditable && !readout.hasAttribute("aria-label")) {
      readout.setAttribute("aria-label", `${name}, typed`);
      readout.setAttribute("role", "textbox");
    }
  }
}

// ---- states --------------------------------------------------------------------------------------------

// The arrays of mha_course.pictures.states.packed.
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

// The rows of mha_course.pictures.states.columns.
export function rowsOf({ of, tables }) {
  const next = tables.map((table) => ({ names: Object.keys(table), at: 0 }));
  return of.map((t) => {
    const { names, at } = next[t], row = {};
    for (const name of names) row[name] = tables[t][name][at];
    next[t].at++;
    return row;
  });
}

// What mha_course.pictures.states.parcel made: states, their marks and arrays, and the way to each.
export async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer(), [size] = new Uint32Array(buffer, 0, 1);
  const stored = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const [marks, states] = [stored.marks, stored.states].map(rowsOf);
  return { ...stored, marks, states, arrays: arraysOf(stored.arrays, new Uint8Array(buffer, 4 + size)) };
}

// Where a control stands when only the positions of a node are left: mha_course.pictures.states.settled.
const within = ({ input }, place, node) => (place < node.length ? place : input === "range" ? node.length - 1 : 0);

// The nodes on the way to the state at these positions.
function way({ tree, controls }, at) {
  const nodes = [tree];
  at.forEach((place, k) => {
    const node = nodes.at(-1);
    nodes.push(node && place >= 0 ? node[within(controls[k], place, node)] : null);
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

// ---- controls: a deck says where each stands, `at(k)`, and moves it, `set(k, position)` ---------------

const chooser = (deck) => (key, position) => {
  const k = deck.controls.findIndex((c) => c.key === key);
  if (k >= 0) deck.set(k, position);
};

// A button that moves one control through its positions, once; whoever moves the control meanwhile has stopped it.
function player(deck, key) {
  const k = deck.controls.findIndex((c) => c.key === key), button = document.createElement("button");
  let timer = 0, left = 0;
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "▶ Play"; };
  const last = () => deck.controls[k].said.length - 1;
  const go = (place) => { deck.set(k, place); left = deck.at(k); };
  const step = () => { if (deck.at(k) < last() && deck.at(k) === left) go(left + 1); else stop(); };
  button.addEventListener("click", () => {
    if (timer) return stop();
    go(deck.at(k) === last() ? 0 : deck.at(k));
    timer = setInterval(step, 160);
    button.textContent = "❚❚ Pause";
  });
  button.setAttribute("data-lm-suppress-shortcuts", "true");
  stop();
  return { button, stop };
}

// Where a model stands among the positions of a control; −1 at none of them.
function placeOf(model, { input, indexed, typed, said, min, step }) {
  if (typed) return said.indexOf(model.get("value"));
  if (indexed) return model.get("index");
  return input === "checkbox" ? Number(model.get("value")) : Math.round((model.get("value") - min) / step);
}

// Where a model could go at most: fewer positions than its control has may be left.
function lastOf(model, { indexed, min, step }) {
  return indexed ? model.get("_options_labels").length - 1 : Math.floor((model.get("max") - min) / step);
}

// What somebody wants who has put a model where it stands: mha_course.pictures.states.wish.
function wishOf(model, control) {
  const place = placeOf(model, control);
  return control.input === "range" && place === lastOf(model, control) ? Infinity : place;
}

// The same at first: the kernel has fitted the model to the others, at its end perhaps, which nobody wanted.
function firstWish(model, control) {
  const start = control.start ?? Infinity;
  return placeOf(model, control) === Math.min(start, lastOf(model, control)) ? start : wishOf(model, control);
}

function modelDeck(controls, models) {
  const set = (k, place) => {
    const { input, indexed, min, step } = controls[k];
    if (indexed) models[k].set("index", place);
    else models[k].set("value", input === "checkbox" ? Boolean(place) : min + step * place);
    models[k].save_changes();
  };
  return { controls, at: (k) => placeOf(models[k], controls[k]), set };
}

// End goes to a slider's last position of now: noUiSlider goes to the one that was last when it was made.
function endKey(bar, deck, models) {
  const end = (e) => {
    const k = [...bar.children].findIndex((child) => child.contains(e.target));
    if (e.key !== "End" || e.target.getAttribute("role") !== "slider" || !models[k]) return;
    e.preventDefault();
    e.stopPropagation();
    deck.set(k, lastOf(models[k], deck.controls[k]));
  };
  bar?.addEventListener("keydown", end, true);
  return () => bar?.removeEventListener("keydown", end, true);
}

// ipywidgets leaves a slider over a list as long as the list was when it was made.
function stretch(slider, model, control) {
  const last = Math.max(1, lastOf(model, control));
  slider?.noUiSlider.updateOptions({ start: model.get("index"), range: { min: 0, max: last } }, false);
}

// While the browser has the pictures, the kernel hears of a control once it rests: a word to it costs more than a
// picture. With a word on its way the next one follows at once, or the echo of the first would put the control back.
function rest(models, alone) {
  const unsaid = new Map();
  let timer = 0;
  const tell = () => {
    for (const [model, callbacks] of unsaid) Object.getPrototypeOf(model).save_changes.call(model, callbacks);
    unsaid.clear();
  };
  for (const model of models) {
    model.save_changes = (callbacks) => {
      unsaid.set(model, callbacks);
      clearTimeout(timer);
      if (alone() && !model._pending_msgs) timer = setTimeout(tell, 100);
      else tell();
    };
  }
  return {
    off: () => models.forEach((model) => { delete model.save_changes; }),
    busy: () => unsaid.size > 0 || models.some((model) => model._pending_msgs > 0),
  };
}

// The room of the longest word that a slider says, so that its neighbours stay where they are.
const longest = ({ said }) => `${Math.max(...said.map((word) => word.length))}ch`;

// ---- the widget --------------------------------------------------------------------------------------

async function render({ model, el }) {
  const off = [], { controls, play } = model.get("deck");
  let gone = false;
  let deck = null, stored = null, room = 860;
  const view = new View(el, model.get("look"), (...where) => deck && chooser(deck)(...where));
  const listen = (m, event, f) => { m.on(event, f); off.push(() => m.off(event, f)); };
  const resize = new ResizeObserver(() => {
    const now = Math.floor((el.clientWidth - 8) / 20) * 20;
    view.tallest = 0;
    if (now <= 0 || now === room) return;
    room = now;
    const wanted = Math.min(860, Math.max(320, now));
    if (wanted !== model.get("room")) { model.set("room", wanted); model.save_changes(); }
    view.again();
  });
  const fail = () => view.fail(model.get("error"));
  const start = async () => {
    if (gone) return;
    const explorer = el.closest(".mha-explorer"), bar = explorer?.querySelector(".mha-bar");
    if (explorer) {
      const names = new MutationObserver(() => nameSliders(explorer, controls ?? []));
      names.observe(explorer, { subtree: true, childList: true, attributes: true, characterData: true,
                                attributeFilter: ["aria-valuetext", "aria-valuenow", "contenteditable"] });
      nameSliders(explorer, controls ?? []);
      off.push(() => names.disconnect());
    }
    const models = await Promise.all((controls ?? []).map((c) => model.widget_manager.get_model(c.id)));
    if (gone) return;
    deck = modelDeck(controls ?? [], models);
    // What the kernel has sent beforehand for where the reader wants the controls.
    const wishes = models.map((m, k) => firstWish(m, controls[k]));
    const wanted = () => wishes.map((wish, k) => (controls[k].typed ? placeOf(models[k], stored.controls[k]) : wish));
    const known = () => (stored?.rooms[0] === model.get("room") ? stateAt(stored, wanted(), room) : null);
    let alone = false;
    const moved = () => { // a kernel that is asked will answer
      const scene = known();
      alone = Boolean(scene);
      if (scene) { view.fail(""); view.show(scene); }
    };
    const answered = () => view.show(known() ?? fill(model.get("scene"), arraysOf(model.get("scene").arrays, bytesIn(model.get("data")))));
    const arrive = async () => {
      if (!model.get("stored").byteLength) return;
      view.stored = stored = await unpack(bytesIn(model.get("stored")));
      moved();
    };
    const resting = rest(models, () => alone);
    // Whether the kernel has fitted this control to the others: nobody wants it elsewhere for that.
    const fitted = (m, k) => {
      if (m._state_lock && resting.busy()) return true; // to what it has been told, or soon will be
      const left = stored && way(stored, wanted().slice(0, k)).at(-1);
      return left && !controls[k].typed && placeOf(m, controls[k]) === within(controls[k], wishes[k], left);
    };
    models.forEach((m, k) => listen(m, controls[k].indexed ? "change:index" : "change:value", () => {
      if (fitted(m, k)) return;
      wishes[k] = wishOf(m, controls[k]);
      moved();
    }));
    models.forEach((m, k) => {
      if (controls[k].indexed && controls[k].input === "range")
        listen(m, "change:_options_labels", () => stretch(bar?.children[k]?.querySelector(".noUi-target"), m, controls[k]));
    });
    off.push(resting.off, endKey(bar, deck, models));
    if (play) {
      const { button, stop } = player(deck, play);
      bar?.append(button);
      off.push(stop);
    }
    (controls ?? []).forEach((c, k) => bar?.children[k]?.style.setProperty("--mha-longest", longest(c)));
    bar?.append(view.head);
    listen(model, "change:scene", answered);
    listen(model, "change:stored", arrive);
    listen(model, "change:error", fail);
    answered();
    arrive();
    fail();
    resize.observe(el);
  };
  requestAnimationFrame(start); // the element is in the page, and has its theme, one frame from now
  return () => { gone = true; off.forEach((f) => f()); resize.disconnect(); view.remove(); };
}

const bytesIn = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

// ---- a saved page ------------------------------------------------------------------------------------

export async function mount(el, look, bytes) {
  const stored = await unpack(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)));
  const { controls, play } = stored, bar = document.createElement("div"), stage = document.createElement("div");
  bar.className = "mha-bar mha-controls";
  el.classList.add("mha-explorer");
  el.replaceChildren(bar, stage);
  // Where the page, then the reader, wants each control; who goes to a slider's end wants the end, wherever it will be.
  const wishes = controls.map((c) => c.start ?? Infinity), left = (k) => way(stored, wishes.slice(0, k)).at(-1);
  const deck = {
    controls,
    at: (k) => within(controls[k], wishes[k], left(k)),
    set: (k, place) => { wishes[k] = wish(place, k); go(); },
  };
  const wish = (place, k) => (controls[k].input === "range" && place === left(k).length - 1 ? Infinity : place);
  const view = new View(stage, look, chooser(deck));
  const inputs = controls.map((c, k) => {
    const label = bar.appendChild(document.createElement("label")), now = document.createElement("output");
    const input = document.createElement(c.input === "select" ? "select" : "input");
    if (c.input === "select") input.append(...c.said.map((said, i) => new Option(said, i)));
    else Object.assign(input, { type: c.input, min: 0, step: 1 });
    now.style.minWidth = longest(c);
    label.append(c.name, input, ...(c.input === "range" ? [now] : []));
    if (c.typed) label.append("To type your own, open the notebook in JupyterLab: that needs a kernel.");
    input.addEventListener("input", () => deck.set(k, Number(c.input === "checkbox" ? input.checked : input.value)));
    return { label, input, now };
  });
  function go() {
    controls.forEach((c, k) => {
      const { label, input, now } = inputs[k], node = left(k), place = deck.at(k);
      label.hidden = node.length === 1;
      if (c.input === "checkbox") {
        input.checked = place === 1;
        return;
      }
      if (c.input === "select") [...input.options].forEach((o, i) => { o.hidden = o.disabled = i >= node.length; });
      else input.max = node.length - 1;
      input.value = place;
      now.textContent = c.said[place];
      if (c.input === "range") input.setAttribute("aria-valuetext", spoken(c.said[place]));
    });
    view.show(stateAt(stored, wishes, stage.clientWidth));
  }
  controls.forEach(({ key }, k) => { if (key in el.dataset) wishes[k] = wish(Number(el.dataset[key]), k); });
  if (play) bar.append(player(deck, play).button);
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
