// Controls over a view. In a notebook it is an anywidget; a saved page calls `mount`.

import {
  chooser, endKey, lastOf, longest, modelControls, nameSliders, player, positionOf, Requests, rest, spoken, stretch,
} from "./controls.js";
import { element } from "./elements.js";
import { arraysOf, fill, stateAt, unpack } from "./states.js";
import { View } from "./view.js";

async function render({ model, el }) {
  const off = [], { controls: all = [], play, headline } = model.get("controls");
  let gone = false;
  let controls = null, prefetched = null, width = 860;
  const view = new View(el, model.get("theme"), (...where) => controls && chooser(controls)(...where));
  const listen = (m, event, f) => { m.on(event, f); off.push(() => m.off(event, f)); };
  const resize = new ResizeObserver(() => {
    const now = Math.floor((el.clientWidth - 8) / view.unit / 20) * 20;
    view.resize();
    if (now <= 0 || now === width) return;
    width = now;
    const wanted = Math.min(860, Math.max(320, now));
    if (wanted !== model.get("width")) { model.set("width", wanted); model.save_changes(); }
    view.again();
  });
  const fail = () => view.fail(model.get("error"));
  const start = async () => {
    if (gone) return;
    const explorer = el.closest(".mha-explorer"), bar = explorer?.querySelector(".mha-bar");
    if (explorer) {
      explorer.prepend(...lead(headline));
      const names = new MutationObserver(() => nameSliders(explorer, all));
      names.observe(explorer, { subtree: true, childList: true, attributes: true, characterData: true,
                                attributeFilter: ["aria-valuetext", "aria-valuenow", "contenteditable"] });
      nameSliders(explorer, all);
      off.push(() => names.disconnect());
    }
    const models = await Promise.all(all.map((c) => model.widget_manager.get_model(c.id)));
    if (gone) return;
    controls = modelControls(all, models);
    const requests = new Requests(all);
    const moved = (k) => requests.ask(k, controls.at(k), lastOf(models[k], all[k]));
    // The kernel has resolved the first requests; a model that stands elsewhere was moved by the reader.
    all.forEach((c, k) => { if (controls.at(k) !== Math.min(requests.asked[k], lastOf(models[k], c))) moved(k); });
    // What the kernel has sent beforehand; what is typed is looked up among what it knew then.
    const known = () => {
      if (prefetched?.widths[0] !== model.get("width")) return null;
      all.forEach((c, k) => { if (c.typed) requests.asked[k] = positionOf(models[k], prefetched.controls[k]); });
      return stateAt(prefetched, requests.asked, width);
    };
    let alone = false;
    const show = () => { // a kernel that is asked will answer
      view.positions = Object.fromEntries(all.map(({ key }, k) => [key, controls.at(k)]));
      const scene = known();
      alone = Boolean(scene);
      if (scene) { view.fail(""); view.show(scene); }
    };
    view.positions = Object.fromEntries(all.map(({ key }, k) => [key, controls.at(k)]));
    const answered = () => view.show(known() ?? fill(model.get("scene"), arraysOf(model.get("scene").arrays,
      bytesIn(model.get("data")))));
    const arrive = async () => {
      if (!model.get("prefetched").byteLength) return;
      view.prefetched = prefetched = await unpack(bytesIn(model.get("prefetched")));
      show();
    };
    const resting = rest(models, () => alone);
    // Whether the kernel has moved this control, resolving what is asked for: that is no request.
    const byKernel = (m, k) => {
      if (m._state_lock && resting.busy()) return true; // it answers a message, and the last one is still to come
      return prefetched && requests.left(prefetched, k) && !all[k].typed
        && controls.at(k) === requests.resolved(prefetched, k);
    };
    models.forEach((m, k) => listen(m, all[k].indexed ? "change:index" : "change:value", () => {
      if (byKernel(m, k)) return;
      moved(k);
      show();
    }));
    models.forEach((m, k) => {
      if (all[k].indexed && all[k].input === "range")
        listen(m, "change:_options_labels", () => stretch(bar?.children[k]?.querySelector(".noUi-target"), m, all[k]));
    });
    off.push(resting.off, endKey(bar, controls, models));
    if (play) {
      const { button, stop } = player(controls, play);
      bar?.append(button);
      off.push(stop);
    }
    all.forEach((c, k) => bar?.children[k]?.style.setProperty("--mha-longest", longest(c)));
    bar?.append(view.range, view.head);
    if (bar) view.over.observe(bar);
    listen(model, "change:scene", answered);
    listen(model, "change:prefetched", arrive);
    listen(model, "change:error", fail);
    view.ask = (question) => model.send(question);
    listen(model, "msg:custom", (answer) => (view.cut ?? view.writes)?.told(answer));
    answered();
    if (bar?.closest(".jp-Cell")?.nextElementSibling?.matches(".jp-mod-active")) setTimeout(comeOut, 300, view, bar);
    arrive();
    fail();
    resize.observe(el);
  };
  requestAnimationFrame(start); // the element is in the page, and has its theme, one frame from now
  return () => { gone = true; off.forEach((f) => f()); resize.disconnect(); view.remove(); };
}

// Shift + Enter brings the next cell into sight: the picture above shall not begin under its bar.
function comeOut({ stage }, bar) {
  if (bar.getBoundingClientRect().bottom > stage.getBoundingClientRect().top + 1) bar.parentElement.scrollIntoView();
}

// What there is to see, above all else.
const lead = (textContent) =>
  (textContent ? [element("p", { className: "mha-lead", textContent })] : []);

const bytesIn = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

export async function mount(el, theme, base64) {
  const states = await unpack(await (await fetch(`data:;base64,${base64}`)).blob());
  const { controls: all, play, headline } = states, bar = element("div", { className: "mha-bar mha-controls" }),
    stage = element("div");
  const requests = new Requests(all);
  const ask = (k, position) => requests.ask(k, position, requests.left(states, k).length - 1);
  const controls = { all, at: (k) => requests.resolved(states, k),
    set: (k, position) => { ask(k, position); apply(); moved(); } };
  const moved = () => el.dispatchEvent(new CustomEvent("mha-moved", { bubbles: true }));
  const view = new View(stage, theme, chooser(controls));
  await new Promise((done) => { setTimeout(done); }); // the reader goes first
  const focused = el.contains(document.activeElement), // on its still picture, which goes
    phone = el.clientWidth < 480;
  el.classList.add("mha-explorer");
  el.replaceChildren(...lead(headline), bar, stage);
  let place = null, own = null, // for a sentence that is typed; the pictures of what nobody has packed
    width = 0;
  const inputs = all.map((c, k) => {
    // a slider says it itself
    const label = bar.appendChild(element("label")), now = element("span", { ariaHidden: true });
    const input = element(c.input === "select" ? "select" : "input");
    if (c.input === "select") input.append(...c.labels.map((label, i) => new Option(label, i)));
    else Object.assign(input, { type: c.input, min: 0, step: 1 });
    now.style.minWidth = longest(c);
    label.append(...(c.input === "checkbox" ? [input, c.name] : [c.name, input]),
      ...(c.input === "range" ? [now] : []));
    if (c.typed) {
      place = bar.appendChild(element("div", { className: "mha-typed" },
        "To type your own, open the notebook in JupyterLab: that needs a kernel."));
      input.addEventListener("input", () => { own = null; });
    }
    input.addEventListener("input",
      () => controls.set(k, Number(c.input === "checkbox" ? input.checked : input.value)));
    return { label, input, now };
  });
  function apply() {
    all.forEach((c, k) => {
      const { label, input, now } = inputs[k], { length } = requests.left(states, k), position = controls.at(k);
      label.hidden = length === 1;
      if (c.input === "checkbox") {
        input.checked = position === 1;
        return;
      }
      if (c.input === "select") [...input.options].forEach((o, i) => { o.hidden = o.disabled = i >= length; });
      else input.max = length - 1;
      if (c.input === "range" || inputs[k].at !== position) input.value = position; // else it may say one's own
      inputs[k].at = position;
      now.textContent = c.labels[position];
      if (c.input === "range") input.setAttribute("aria-valuetext", spoken(c.labels[position]));
    });
    const at = Object.fromEntries(all.map(({ key }, k) => [key, controls.at(k)]));
    const wide = width / view.unit;
    view.positions = at;
    view.show(own?.(at, wide) ?? stateAt(states, requests.asked, wide));
  }
  const use = (pictures) => { own = pictures; apply(); };
  all.forEach(({ key }, k) => { if (key in el.dataset) ask(k, Number(el.dataset[key])); });
  if (play) bar.append(player(controls, play).button);
  // on a phone the bar shall be low
  if (!phone) bar.insertBefore(view.range, place?.previousSibling ?? null);
  bar.append(view.head);
  view.over.observe(bar);
  const plain = states.states.filter(({ flow, cut, writes }) => !(flow || cut || writes)), // others have their own room
    longestCaption = plain.reduce((most, { caption }) => (caption.length > most.length ? caption : most), "");
  const fit = () => {
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    view.resize();
    view.reserve(longestCaption);
    apply();
  };
  fit(); // at once: what is filled a frame later jumps
  new ResizeObserver(fit).observe(stage);
  if (focused) view.canvas.focus({ preventScroll: true });
  addEventListener("beforeprint", fit); // its fold may have been opened for paper only now
  el.dispatchEvent(new CustomEvent("mha-mounted", { bubbles: true, detail: { el, view, controls, place, use } }));
}

export default { render };
