// Numbers as mha_course.base.numerals.number writes them, and what is computed of lists.

export function number(value, decimals = null) {
  if (Number.isNaN(value)) return "NaN";
  let minus = value < 0 ? "−" : "", size = Math.abs(value);
  if (size === Infinity) return minus + "∞";
  if (size >= 1e15) return minus + size.toExponential(1).replace("e+", "e");
  const whole = size === Math.trunc(size);
  if (size >= 10000 || (size >= 999.5 && !whole)) {
    for (const unit of ["", "k", "M", "G", "T"]) {
      const text = size.toFixed(size < 99.95 && unit ? 1 : 0);
      if (Number(text) < 1000 || unit === "T") {
        return minus + (Number(text) === size ? text.replace(/\.0$/, "") : text) + unit;
      }
      size /= 1000;
    }
  }
  if (decimals === null) {
    if (whole) return minus + String(size);
    if (size < 0.001) {
      const [m, e] = size.toExponential(1).split("e-");
      return `${minus}${m}e−${e}`;
    }
    decimals = size < 0.1 ? 3 : size < 10 ? 2 : size < 99.95 ? 1 : 0;
  }
  const text = size.toFixed(decimals);
  if (Number(text) === 0) minus = "";
  return minus + (text.startsWith("0.") ? text.slice(1) : text);
}

export const sum = (list) => list.reduce((a, b) => a + b, 0);
