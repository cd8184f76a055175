/** Curves of a flight as it goes on: four small plots with the numbers of the moment. */

import { make } from "./dom.js";

const MOST_POINTS = 1200;
const SHORTEST_SECONDS = 2;
const MOST_DECADES = 6;

/** In the order of a panel's numbers. */
export const METRICS = [
  { name: "Velocity variance", log: true },
  { name: "Components", whole: true },
  { name: "Min. separation" },
  { name: "Mean acceleration", log: true },
];

const superscript = (number) => [...String(number)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

function written(value, whole) {
  if (!Number.isFinite(value)) return "–";
  if (whole) return String(value);
  if (value === 0 || value >= 0.001) return value.toPrecision(3);
  const power = Math.floor(Math.log10(value));
  return `${(value / 10 ** power).toFixed(1)}·10${superscript(power)}`;
}

/** The numbers of a flight so far, thinned out when there are too many: times, and rows[time][panel][metric]. */
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.times = [];
    this.rows = [];
  }

  /** Add the numbers of all panels at a time; those of the same time are replaced. */
  add(time, numbers) {
    if (this.times.at(-1) === time) {
      this.times.pop();
      this.rows.pop();
    }
    if (this.times.length >= MOST_POINTS) {
      const even = (_, i) => i % 2 === 0;
      [this.times, this.rows] = [this.times.filter(even), this.rows.filter(even)];
    }
    this.times.push(time);
    this.rows.push(numbers);
  }
}

/** One plot: its name, the numbers of the moment, and a canvas with the curves. */
export class Plot {
  constructor(parent, metric, index) {
    this.metric = metric;
    this.index = index;
    this.values = make("output");
    this.canvas = make("canvas");
    parent.append(make("figure", {}, make("figcaption", {}, metric.name, this.values), this.canvas));
  }

  /** Write the numbers of the moment, one for each panel. */
  tell(panels) {
    if (this.values.children.length !== panels.length) {
      this.values.replaceChildren(...panels.map((_, i) => make("b", { className: `panel-${i}` })));
    }
    panels.forEach(({ numbers }, i) => {
      this.values.children[i].textContent = written(numbers[this.index], this.metric.whole);
    });
  }

  /**
   * @param {History} history
   * @param {number} now where the flight is, in seconds
   * @param {object} style colours: faint, grid, series [one per panel]
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
      last = Math.max(history.times.at(-1), first + SHORTEST_SECONDS);
    const x = (time) => box.left + ((time - first) / (last - first)) * (box.right - box.left);
    const values = history.rows.flat().map((numbers) => numbers[this.index]);
    const scale = scaleFor(values, this.metric, box);
    this.#axes(pen, box, scale, { x, first, last }, style);
    pen.save();
    pen.beginPath();
    pen.rect(box.left - 1, 0, width, box.bottom + 1); // a curve may leave the plot: it does not go along its edge
    pen.clip();
    history.rows[0].forEach((_, panel) => {
      pen.beginPath();
      const places = history.times.map((time, i) => [x(time), scale.y(history.rows[i][panel]?.[this.index])]);
      for (const piece of pieces(places)) {
        pen.moveTo(...piece[0]);
        for (const place of piece) pen.lineTo(...place);
      }
      pen.strokeStyle = style.series[panel];
      pen.lineWidth = 1.6;
      pen.lineJoin = pen.lineCap = "round"; // so that a number between two that are missing is a dot
      pen.stroke();
    });
    pen.restore();
    pen.fillStyle = style.faint;
    pen.fillRect(x(Math.min(now, last)) - 0.5, box.top, 1, box.bottom - box.top);
  }

  #axes(pen, box, scale, { x, first, last }, style) {
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
 * The ticks of an axis, and the height of a value: below the box for one below the axis, NaN for one that has no place,
 * such as 0 on a logarithmic axis.
 */
export function scaleFor(numbers, metric, box) {
  const values = numbers.filter(Number.isFinite);
  const between = (low, high) => (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
  const largest = Math.max(...values, 0);
  if (metric.log) {
    // What is there for a moment only, such as a start without any variance, has no say in the scale.
    const positive = values.filter((value) => value > 0).sort((a, b) => a - b);
    const least = positive[Math.floor(0.03 * positive.length)] ?? 1;
    const high = positive.length ? Math.ceil(Math.log10(largest)) : 0;
    const low = Math.min(Math.max(Math.floor(Math.log10(least)), high - MOST_DECADES), high - 1);
    const ticks = [];
    for (let power = low; power <= high; power += Math.ceil((high - low) / 3)) {
      ticks.push({ value: 10 ** power, text: `10${superscript(power)}` });
    }
    const y = between(low, high);
    return { ticks, y: (value) => (value > 0 ? y(Math.log10(value)) : NaN) };
  }
  const high = niceAbove(Math.max(largest, metric.whole ? 2 : 1e-3));
  const ticks = [0, high / 2, high].filter((v) => !metric.whole || Number.isInteger(v));
  const y = between(0, high);
  return {
    ticks: ticks.map((value) => ({ value, text: Number(value.toPrecision(3)).toString() })),
    y: (value) => (Number.isFinite(value) ? y(value) : NaN),
  };
}

/** A curve through [x, y], broken where there is no place to go through. */
export function pieces(places) {
  const found = [];
  let open = false;
  for (const place of places) {
    const there = Number.isFinite(place[1]);
    if (there && !open) found.push([]);
    if (there) found.at(-1).push(place);
    open = there;
  }
  return found;
}

/** The next of 1, 2, 4, 5, 8, 10 .. at or above a value. */
function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= value * 0.999);
}
