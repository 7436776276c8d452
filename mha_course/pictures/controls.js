// Where controls stand: what is asked for, what is possible (mha_course.pictures.controls), and ipywidgets' sliders.

import { pressable } from "./elements.js";
import { path, possible } from "./states.js";

// What the reader asks for: a position of each control. Infinity: a slider at its maximum stays there when the range
// changes.
export class Requests {
  constructor(controls) {
    this.controls = controls;
    this.asked = controls.map((c) => c.start ?? Infinity);
  }
  ask(k, position, last) { this.asked[k] = this.controls[k].input === "range" && position === last ? Infinity
    : position; }
  // The node of the positions that earlier controls leave to control k, and where it then stands.
  left(states, k) { return path(states, this.asked.slice(0, k)).at(-1); }
  resolved(states, k) { return possible(this.controls[k], this.asked[k], this.left(states, k)); }
}

// Controls are { all, at(k), set(k, position) }. `chooser` moves one of them by its key; a box turns round.
export const chooser = (controls) => (key, position) => {
  const k = controls.all.findIndex((c) => c.key === key);
  if (k >= 0) controls.set(k, position ?? 1 - controls.at(k));
};

// Lets a menu say what is shown: what it offers, or somebody's own, which cannot be chosen.
export function sayIn(menu, text) {
  if (!menu) return;
  const offered = [...menu.options].find((one) => one.value >= 0 && one.text === text);
  const own = menu.querySelector("[value='-1']") ?? menu.appendChild(new Option("", -1));
  Object.assign(own, { hidden: true, ...(offered ? {} : { textContent: text }) });
  (offered ?? own).selected = true;
}

// A button that moves one control through its positions once, until somebody else moves the control.
export function player(controls, key) {
  const k = controls.all.findIndex((c) => c.key === key), button = pressable("", () => {
    if (timer) return stop();
    go(controls.at(k) === last() ? 0 : controls.at(k));
    timer = setInterval(step, 160);
    button.textContent = "❚❚ Pause";
  });
  let timer = 0, left = 0;
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "▶ Play"; };
  const last = () => controls.all[k].labels.length - 1;
  const go = (position) => { controls.set(k, position); left = controls.at(k); };
  const step = () => { if (controls.at(k) < last() && controls.at(k) === left) go(left + 1); else stop(); };
  stop();
  return { button, stop };
}

// Where a model stands among the positions of a control; −1 at none of them.
export function positionOf(model, { input, indexed, typed, labels, min, step }) {
  if (typed) return labels.indexOf(model.get("value"));
  if (indexed) return model.get("index");
  return input === "checkbox" ? Number(model.get("value")) : Math.round((model.get("value") - min) / step);
}

// The last position that a model has now.
export function lastOf(model, { indexed, min, step }) {
  return indexed ? model.get("_options_labels").length - 1 : Math.floor((model.get("max") - min) / step);
}

export function modelControls(all, models) {
  const set = (k, position) => {
    const { input, indexed, min, step } = all[k];
    if (indexed) models[k].set("index", position);
    else models[k].set("value", input === "checkbox" ? Boolean(position) : min + step * position);
    models[k].save_changes();
  };
  return { all, at: (k) => positionOf(models[k], all[k]), set };
}

// End goes to a slider's last position of now: noUiSlider goes to the one that was last when it was made.
export function endKey(bar, controls, models) {
  const end = (e) => {
    const k = [...bar.children].findIndex((child) => child.contains(e.target));
    if (e.key !== "End" || e.target.getAttribute("role") !== "slider" || !models[k]) return;
    e.preventDefault();
    e.stopPropagation();
    controls.set(k, lastOf(models[k], controls.all[k]));
  };
  bar?.addEventListener("keydown", end, true);
  return () => bar?.removeEventListener("keydown", end, true);
}

// ipywidgets leaves a slider over a list as long as the list was when it was made.
export function stretch(slider, model, control) {
  const last = Math.max(1, lastOf(model, control));
  slider?.noUiSlider.updateOptions({ start: model.get("index"), range: { min: 0, max: last } }, false);
}

// While the browser has the pictures, the kernel hears of a control once it rests: a message costs more than a
// picture. After a message on its way the next follows at once, or the echo of the first would move the control back.
export function rest(models, alone) {
  const unsent = new Map();
  let timer = 0;
  const send = () => {
    for (const [model, callbacks] of unsent) Object.getPrototypeOf(model).save_changes.call(model, callbacks);
    unsent.clear();
  };
  for (const model of models) {
    model.save_changes = (callbacks) => {
      unsent.set(model, callbacks);
      clearTimeout(timer);
      if (alone() && !model._pending_msgs) timer = setTimeout(send, 100);
      else send();
    };
  }
  return {
    off: () => models.forEach((model) => { delete model.save_changes; }),
    busy: () => unsent.size > 0 || models.some((model) => model._pending_msgs > 0),
  };
}

// The width of the longest label of a slider, so that its neighbours stay where they are.
export const longest = ({ labels }) => `${Math.max(...labels.map((label) => label.length))}ch`;

// What a slider says, with raised and lowered letters as plain ones: W O for Wᴼ.
export const spoken = (label) => label.replace(/\p{Lm}/gu, (letter) => ` ${letter.normalize("NFKC")}`);

// Names for ipywidgets' sliders, which have none, and a mark on all that can have the focus: JupyterLab takes no key
// there (b adds a cell). A mark around them is not enough: some shortcuts ask for the focused element itself.
export function nameSliders(root, controls) {
  for (const control of root.querySelectorAll("a, button, input, select, summary, [contenteditable], [tabindex]"))
    control.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const slider of root.querySelectorAll(".widget-slider, .widget-hslider, .widget-inline-hbox")) {
    const name = slider.querySelector(".widget-label")?.textContent.trim();
    const readout = slider.querySelector(".widget-readout");
    // A slider over a list takes no typing, though ipywidgets lets its readout be edited, after every move anew.
    const k = [...slider.parentElement.children].indexOf(slider);
    if (readout?.isContentEditable && controls[k]?.indexed) readout.contentEditable = "false";
    for (const handle of slider.querySelectorAll("[role=slider]")) {
      if (name && handle.getAttribute("aria-label") !== name) handle.setAttribute("aria-label", name);
      const value = readout && spoken(readout.textContent.trim());
      if (value && handle.getAttribute("aria-valuetext") !== value) handle.setAttribute("aria-valuetext", value);
    }
    if (name && readout?.isContentEditable && !readout.hasAttribute("aria-label")) {
      readout.setAttribute("aria-label", `${name}, typed`);
      readout.setAttribute("role", "textbox");
    }
  }
}
