/** Plots of the metrics of a flight, with their current values. */

import { make } from "./dom.js";

const MAX_POINTS = 1200;
const MIN_SECONDS = 2; // of the time axis
const MAX_DECADES = 6; // of a logarithmic axis

/** Metrics in the order of a panel's `metricValues`. */
export const METRICS = [
  { name: "Velocity variance", log: true },
  { name: "Components", integer: true },
  { name: "Min. separation" },
  { name: "Mean acceleration", log: true },
  { name: "RMS acceleration", log: true },
  { name: "Peak acceleration", log: true },
];

const superscript = (number) => [...String(number)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

/** Format a value with three digits, or as 1.2·10⁻⁵ below 0.001; – for NaN and infinity. */
function formatValue(value, integer) {
  if (!Number.isFinite(value)) return "–";
  if (integer) return String(value);
  if (value === 0 || value >= 0.001) return value.toPrecision(3);
  const power = Math.floor(Math.log10(value));
  return `${(value / 10 ** power).toFixed(1)}·10${superscript(power)}`;
}

/** Metrics of a flight so far: times, and rows[time][panel][metric]. At MAX_POINTS every other one is dropped. */
export class History {
  constructor() {
    this.clear();
  }

  /** Forget all metrics. */
  clear() {
    this.times = [];
    this.rows = [];
  }

  /** Append metricValues[panel][metric] at a time in seconds; replace the last ones if they have the same time. */
  add(time, metricValues) {
    if (this.times.at(-1) === time) {
      this.times.pop();
      this.rows.pop();
    }
    if (this.times.length >= MAX_POINTS) {
      const even = (_, i) => i % 2 === 0;
      [this.times, this.rows] = [this.times.filter(even), this.rows.filter(even)];
    }
    this.times.push(time);
    this.rows.push(metricValues);
  }
}

/** The plot of one metric (METRICS[index]): its name, the current values, and a canvas with a curve for each panel. */
export class Plot {
  constructor(parent, metric, index) {
    this.metric = metric;
    this.index = index;
    this.values = make("output");
    this.canvas = make("canvas");
    parent.append(make("figure", {}, make("figcaption", {}, metric.name, this.values), this.canvas));
  }

  /** Show the value of each panel of a frame as text; the curves stay. */
  showValues(panels) {
    if (this.values.children.length !== panels.length) {
      this.values.replaceChildren(...panels.map((_, i) => make("b", { className: `panel-${i}` })));
    }
    panels.forEach(({ metricValues }, i) => {
      this.values.children[i].textContent = formatValue(metricValues[this.index], this.metric.integer);
    });
  }

  /**
   * Draw the curve of each panel, and a vertical line at the current time; nothing while the canvas has no width.
   * @param {History} history
   * @param {number} now current time of the flight, in seconds
   * @param {object} style colours: faint (texts and the line), grid, series (the curves, one per panel)
   */
  draw(history, now, style) {
    const { canvas } = this,
      ratio = Math.min(devicePixelRatio, 2);
    const width = canvas.clientWidth,
      height = canvas.clientHeight;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (!history.times.length) return;

    const box = { left: 30, right: width - 4, top: 6, bottom: height - 14 };
    const first = history.times[0],
      last = Math.max(history.times.at(-1), first + MIN_SECONDS);
    const x = (time) => box.left + ((time - first) / (last - first)) * (box.right - box.left);
    const values = history.rows.flat().map((metricValues) => metricValues[this.index]);
    const scale = makeScale(values, this.metric, box);
    this.#drawAxes(pen, box, scale, { x, first, last }, style);
    pen.save();
    pen.beginPath();
    pen.rect(box.left - 1, 0, width, box.bottom + 1); // clip curves that leave the plot
    pen.clip();
    history.rows[0].forEach((_, panel) => {
      pen.beginPath();
      const points = history.times.map((time, i) => [x(time), scale.y(history.rows[i][panel]?.[this.index])]);
      for (const segment of splitCurve(points)) {
        pen.moveTo(...segment[0]);
        for (const point of segment) pen.lineTo(...point);
      }
      pen.strokeStyle = style.series[panel];
      pen.lineWidth = 1.6;
      pen.lineJoin = pen.lineCap = "round"; // draws a point between two missing values as a dot
      pen.stroke();
    });
    pen.restore();
    pen.fillStyle = style.faint;
    pen.fillRect(x(Math.min(now, last)) - 0.5, box.top, 1, box.bottom - box.top);
  }

  /** Draw a line with its text for each tick, and the first and the last time. */
  #drawAxes(pen, box, scale, { x, first, last }, style) {
    pen.font = "10px system-ui, sans-serif";
    pen.fillStyle = style.faint;
    pen.strokeStyle = style.grid;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const { value, text } of scale.ticks) {
      const y = Math.round(scale.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(box.left, y);
      pen.lineTo(box.right, y);
      pen.stroke();
      pen.fillText(text, box.left - 5, y);
    }
    pen.textBaseline = "alphabetic";
    pen.textAlign = "left";
    pen.fillText(`${Number(first.toFixed(1))} s`, x(first), box.bottom + 12);
    pen.textAlign = "right";
    pen.fillText(`${Number(last.toFixed(1))} s`, x(last), box.bottom + 12);
  }
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
  if (metric.log) {
    // The smallest 3 % are ignored: brief outliers, such as a start without variance, must not set the scale.
    const positive = values.filter((value) => value > 0).sort((a, b) => a - b);
    const least = positive[Math.floor(0.03 * positive.length)] ?? 1;
    const high = positive.length ? Math.ceil(Math.log10(largest)) : 0;
    const low = Math.min(Math.max(Math.floor(Math.log10(least)), high - MAX_DECADES), high - 1);
    const ticks = [];
    for (let power = low; power <= high; power += Math.ceil((high - low) / 3)) {
      ticks.push({ value: 10 ** power, text: `10${superscript(power)}` });
    }
    const y = between(low, high);
    return { ticks, y: (value) => (value > 0 ? y(Math.log10(value)) : NaN) };
  }
  const high = roundUp(Math.max(largest, metric.integer ? 2 : 1e-3));
  const ticks = [0, high / 2, high].filter((v) => !metric.integer || Number.isInteger(v));
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
