/** Axes of plots: scales with ticks, and values as texts. */

const MAX_DECADES = 6; // of a logarithmic axis
const MIN_TICK_PX = 12; // minimum distance between ticks
const MAX_TICKS = 4;

const superscript = (number) => [...String(number)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

/** Format a value with three digits, or as 1.2·10⁻⁵ below 0.001; – for null, NaN and infinity. */
export function formatValue(value, integer) {
  if (!Number.isFinite(value)) return "–";
  if (integer) return String(value);
  if (value === 0 || value >= 0.001) return value.toPrecision(3);
  const power = Math.floor(Math.log10(value));
  return `${(value / 10 ** power).toFixed(1)}·10${superscript(power)}`;
}

/**
 * Return {ticks, y} of an axis that fits the values: ticks as {value, text}, and the function y(value) in css pixels.
 * It returns a height below the box for a value below the axis, and NaN for one that cannot be drawn, such as null, or
 * 0 on a logarithmic axis.
 */
export function makeScale(metricValues, metric, box) {
  const values = metricValues.filter(Number.isFinite);
  const between = (low, high) => (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
  const largest = Math.max(...values, 0);
  const maxTicks = Math.min(Math.max(Math.floor((box.bottom - box.top) / MIN_TICK_PX) + 1, 2), MAX_TICKS);
  if (metric.log) {
    // The smallest 3 % are ignored: brief outliers, such as a start without variance, must not set the scale.
    const positive = values.filter((value) => value > 0).sort((a, b) => a - b);
    const least = positive[Math.floor(0.03 * positive.length)] ?? 1;
    const high = positive.length ? Math.ceil(Math.log10(largest)) : 0;
    const low = Math.min(Math.max(Math.floor(Math.log10(least)), high - MAX_DECADES), high - 1);
    const ticks = [];
    for (let power = low; power <= high; power += Math.ceil((high - low) / (maxTicks - 1))) {
      ticks.push({ value: 10 ** power, text: `10${superscript(power)}` });
    }
    const y = between(low, high);
    return { ticks, y: (value) => (value > 0 ? y(Math.log10(value)) : NaN) };
  }
  const high = roundUp(Math.max(largest, metric.integer ? 2 : 1e-3));
  const ticks = [0, high / 2, high].filter((v) => (maxTicks > 2 || v !== high / 2) && (!metric.integer || v % 1 === 0));
  const y = between(0, high);
  return {
    ticks: ticks.map((value) => ({ value, text: Number(value.toPrecision(3)).toString() })),
    y: (value) => (Number.isFinite(value) ? y(value) : NaN),
  };
}

/** Split a curve of points [x, y] into lists of consecutive points whose y is finite; other points are dropped. */
export function splitCurve(points) {
  const segments = [];
  let isOpen = false;
  for (const point of points) {
    const isPresent = Number.isFinite(point[1]);
    if (isPresent && !isOpen) segments.push([]);
    if (isPresent) segments.at(-1).push(point);
    isOpen = isPresent;
  }
  return segments;
}

/** Round a positive number up to 1, 2, 4, 5 or 8 times a power of 10. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= value * 0.999);
}
