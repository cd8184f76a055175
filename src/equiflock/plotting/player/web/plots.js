/** The plot of one metric: its curves, and the values at a time that the reader points at. */

import { make } from "./dom.js";
import { formatValue, makeScale, splitCurve } from "./plot_axes.js";

const MIN_SECONDS = 2; // of the time axis of a live flight
const LARGE_PX = 140; // height from which on texts are larger
const MAX_LABEL_PX = 24; // width of a label at an end of the time axis
const READING_STEPS = 50; // of the arrow keys along the time axis

/**
 * The plot of a metric: its name, its value for each panel, and a canvas with a curve for each panel. The canvas is a
 * slider for the time to read, by pointer or arrow keys.
 */
export class Plot {
  /** The element to place in the page. */
  element;
  #metric;
  #index;
  #figure;
  #values = make("output");
  #canvas;
  /** The time axis of the last drawing, {left, right} in css pixels and {first, last} in seconds; null before it. */
  #axis = null;
  #cursor = null;

  /**
   * @param {{name: string, log: ?boolean, integer: ?boolean}} metric
   * @param {number} index of the metric among a panel's `metricValues`
   * @param {object} on callbacks: `read(time)` with the time that the reader points at, or null; `enlarge()`
   */
  constructor(metric, index, on) {
    this.#metric = metric;
    this.#index = index;
    this.#canvas = make("canvas", { tabIndex: 0, role: "slider", ariaLabel: `${metric.name}: time to read` });
    for (const [name, value] of [
      ["min", 0],
      ["max", 0],
      ["now", 0],
      ["text", "no value read"],
    ])
      this.#canvas.setAttribute(`aria-value${name}`, value);
    const name = make("span", { className: "metric" }, metric.name);
    this.#figure = make("figure", {}, make("figcaption", {}, name, this.#values), this.#canvas);
    this.#figure.title = "Click to enlarge; point at the curve to read it";
    this.element = make("div", { className: "plot" }, this.#figure);
    this.#figure.onclick = () => on.enlarge();
    // A press must not take the focus from the flock, whose keys would stop.
    this.#figure.onmousedown = (event) => event.preventDefault();
    this.#canvas.onpointermove = this.#canvas.onpointerdown = ({ offsetX }) => on.read(this.#timeAt(offsetX));
    this.#canvas.onpointerleave = this.#canvas.onpointercancel = this.#canvas.onblur = () => on.read(null);
    this.#canvas.onkeydown = (event) => this.#press(event, on);
  }

  /** Whether the plot is enlarged: the style sheet places it. */
  get isLarge() {
    return this.#figure.classList.contains("enlarged");
  }

  set isLarge(isLarge) {
    this.#figure.classList.toggle("enlarged", isLarge);
  }

  /** Show the value of each panel as text; `metricValues` are those of the panels. */
  showValues(metricValues) {
    if (this.#values.children.length !== metricValues.length) {
      this.#values.replaceChildren(...metricValues.map((_, i) => make("b", { className: `panel-${i}` })));
    }
    metricValues.forEach((values, i) => {
      this.#values.children[i].textContent = formatValue(values[this.#index], this.#metric.integer);
    });
  }

  /**
   * Draw the curve of each panel, a line at the current time, and a mark at the time that is read; nothing while the
   * canvas has no size.
   * @param {import("./history.js").History} history
   * @param {number} now current time of the flight, in seconds
   * @param {?number} cursor index of the recorded time that is read; null for none
   * @param {object} style colours: ink (the mark), faint (texts and the line), grid, series (one per panel)
   */
  draw(history, now, cursor, style) {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width || !height) return;
    const pen = this.#clear(width, height);
    if (!history.times.length) return;
    const isLarge = height > LARGE_PX;
    const font = isLarge ? 12 : 10;
    pen.font = `${font}px system-ui, sans-serif`;
    const box = { left: isLarge ? 44 : 30, right: width - 4, top: 6, bottom: height - font - 4 };
    const first = history.times[0];
    const last = history.duration || Math.max(history.times.at(-1), first + MIN_SECONDS);
    this.#axis = { left: box.left, right: box.right, first, last };
    const x = (time) => box.left + ((time - first) / (last - first)) * (box.right - box.left);
    const values = history.rows.flat().map((metricValues) => metricValues[this.#index]);
    const scale = makeScale(values, this.#metric, box);
    this.#drawAxes(pen, box, scale, style);
    this.#drawCurves(pen, box, history, x, scale, style);
    pen.fillStyle = style.faint;
    pen.fillRect(x(Math.min(now, last)) - 0.5, box.top, 1, box.bottom - box.top);
    this.#cursor = cursor;
    if (cursor !== null) this.#drawCursor(pen, box, history, x, scale, style);
  }

  /** Fit the canvas to its css size, clear it, and return its context, in css pixels. */
  #clear(width, height) {
    const canvas = this.#canvas;
    const ratio = Math.min(devicePixelRatio, 2);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return pen;
  }

  /** Draw a line with its text for each tick, and the first and the last time. */
  #drawAxes(pen, box, scale, style) {
    const { first, last } = this.#axis;
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
    pen.textBaseline = "bottom";
    pen.textAlign = "left";
    pen.fillText(formatTime(first, last), box.left, this.#canvas.clientHeight);
    pen.textAlign = "right";
    pen.fillText(formatTime(last, last), box.right, this.#canvas.clientHeight);
  }

  /** Draw the curve of each panel, without what leaves the box. */
  #drawCurves(pen, box, history, x, scale, style) {
    pen.save();
    pen.beginPath();
    pen.rect(box.left - 1, 0, box.right, box.bottom + 1);
    pen.clip();
    history.rows[0].forEach((_, panel) => {
      pen.beginPath();
      const points = history.times.map((time, i) => [x(time), scale.y(history.rows[i][panel]?.[this.#index])]);
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
  }

  /** Draw a line at the time that is read, with the time as text, and a dot on each curve. */
  #drawCursor(pen, box, history, x, scale, style) {
    const time = history.times[this.#cursor];
    const at = x(time);
    pen.fillStyle = style.ink;
    pen.fillRect(at - 0.5, box.top, 1, box.bottom - box.top);
    history.rows[this.#cursor].forEach((metricValues, panel) => {
      const y = scale.y(metricValues[this.#index]);
      if (!Number.isFinite(y) || y > box.bottom + 1) return;
      pen.beginPath();
      pen.arc(at, y, 3, 0, 2 * Math.PI);
      pen.fillStyle = style.series[panel];
      pen.fill();
    });
    const text = `${time.toFixed(2)} s`;
    const half = pen.measureText(text).width / 2 + 3;
    const middle = Math.min(Math.max(at, box.left + half), box.right - half);
    const { clientHeight: bottom } = this.#canvas;
    // Clear the place, and the whole label of an end that it would cut.
    const left = middle - half < box.left + MAX_LABEL_PX ? box.left : middle - half;
    const right = middle + half > box.right - MAX_LABEL_PX ? box.right : middle + half;
    pen.clearRect(left, box.bottom + 1, right - left, bottom);
    pen.fillStyle = style.ink;
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.fillText(text, middle, bottom);
    this.#describe(time, history.rows[this.#cursor]);
  }

  /** Describe the values at the time that is read to screen readers. */
  #describe(time, metricValues) {
    const texts = metricValues.map((values) => formatValue(values[this.#index], this.#metric.integer));
    this.#canvas.setAttribute("aria-valuemax", this.#axis.last);
    this.#canvas.setAttribute("aria-valuenow", time);
    this.#canvas.setAttribute("aria-valuetext", `${texts.join(" and ")} at ${time.toFixed(2)} s`);
  }

  /** Return the time at a place on the canvas, in css pixels from its left edge; null before the first drawing. */
  #timeAt(pixels) {
    if (!this.#axis) return null;
    const { left, right, first, last } = this.#axis;
    const share = Math.min(Math.max((pixels - left) / (right - left), 0), 1);
    return first + share * (last - first);
  }

  /** Read the curve by arrow keys, Home and End, and enlarge or shrink the plot by Enter. */
  #press(event, on) {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key === "Enter") on.enlarge();
    else if (this.#axis && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) {
      const { first, last } = this.#axis;
      const time = Math.max(Number(this.#canvas.getAttribute("aria-valuenow")), first);
      const step = ((last - first) / READING_STEPS) * (key === "ArrowLeft" ? -1 : 1);
      on.read({ Home: first, End: last }[key] ?? Math.min(Math.max(time + step, first), last));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Format a time of the axis: two decimals for a short one. */
const formatTime = (time, last) => `${Number(time.toFixed(last < 10 ? 2 : 1))} s`;
