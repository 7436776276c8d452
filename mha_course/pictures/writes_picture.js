// What writes.js draws as words, ribbons and bars of the page, as the marks of a picture, to be saved.

export function pictureOf(writes) {
  const { view: { scene, el }, stage, words, bars, answer, story } = writes, range = document.createRange();
  const all = stage.closest(".mha-top").getBoundingClientRect(), own = getComputedStyle(el),
    ink = (name) => own.getPropertyValue(name);
  const box = (thing) => {
    const { left, top, width, height } = thing.getBoundingClientRect();
    return { x: left - all.left, y: top - all.top, width, height };
  };
  const written = (element) => {
    range.selectNodeContents(element);
    const { x, y, width, height } = box(range), { fontSize: size, fontWeight } = getComputedStyle(element);
    return { kind: "text", x: x + width / 2, y: y + height / 2, text: element.textContent.trim(), align: "center",
      size: parseFloat(size), bold: fontWeight > 500 };
  };
  const { x, y } = box(stage), texts = [...words.querySelectorAll("button, .mha-dots"), answer,
    ...bars.querySelectorAll("b, b ~ span:nth-of-type(2)")];
  const ribbons = writes.ribbons.map(({ cut, edges }) => ({ kind: "path", width: 1,
    points: edges.flatMap(([down, across]) => [x + across, y + down]), ...(writes.isCut(cut)
      ? { colour: ink("--mha-cut"), dashed: 1 } : { colour: ink("--mha-ribbon"), filled: true }) }));
  const rects = [...bars.querySelectorAll("i")].map((bar) => ({ ...box(bar), colour: getComputedStyle(bar)
    .backgroundColor })), struck = [...words.querySelectorAll("[aria-pressed=true]")].map(box).map((word) => ({
    ...word, y: word.y + 0.54 * word.height, height: 3, colour: ink("--mha-cut") }));
  const ends = [answer, bars].map(box).map((part) => part.y + part.height);
  return { ...scene, width: all.width, height: Math.max(...ends), alt: `${story.text} … ${answer.textContent}`,
    marks: [...ribbons, ...texts.map(written), ...[...rects, ...struck].map((r) => ({ kind: "rect", ...r }))] };
}
