/** The curves of all metrics of a flight, read at one time. */

import { METRICS } from "./history.js";
import { Plot } from "./plots.js";

/** A plot for each metric: pointing at one reads all of them at that time, and one at a time may be enlarged. */
export class Curves {
  #plots;
  /** What is shown: {history, metricValues, now, style}; null before the first call of `show`. */
  #shown = null;
  /** Time that the reader points at, in seconds; null for none. */
  #readTime = null;

  /** @param {HTMLElement} parent of the plots */
  constructor(parent) {
    const read = (time) => {
      this.#readTime = time;
      this.#draw();
    };
    this.#plots = METRICS.map((metric, i) => {
      const plot = new Plot(metric, i, { read, enlarge: () => this.#enlarge(plot) });
      return plot;
    });
    const elements = this.#plots.map(({ element }) => element);
    parent.append(...elements);
    const observer = new ResizeObserver(() => this.#draw());
    for (const element of elements) observer.observe(element.querySelector("canvas"));
  }

  /**
   * Show the curves, and the values at the current time, or at the one that the reader points at.
   * @param {import("./history.js").History} history
   * @param {number[][]} metricValues current metrics of each panel
   * @param {number} now current time of the flight, in seconds
   * @param {object} style colours, as of Plot.draw
   */
  show(history, metricValues, now, style) {
    this.#shown = { history, metricValues, now, style };
    this.#draw();
  }

  #draw() {
    if (!this.#shown) return;
    const { history, metricValues, now, style } = this.#shown;
    const nearest = this.#readTime === null ? -1 : history.findNearest(this.#readTime);
    const cursor = nearest < 0 ? null : nearest;
    for (const plot of this.#plots) {
      plot.showValues(cursor === null ? metricValues : history.rows[cursor]);
      plot.draw(history, now, cursor, style);
    }
  }

  /** Enlarge a plot, or shrink it if it is enlarged or null; the others shrink, and Escape shrinks all. */
  #enlarge(plot) {
    const isLarge = plot !== null && !plot.isLarge;
    for (const other of this.#plots) other.isLarge = other === plot && isLarge;
    if (isLarge) addEventListener("keydown", this.#closeByEscape, true);
    else removeEventListener("keydown", this.#closeByEscape, true);
    this.#draw();
  }

  /** Shrink the enlarged plot at Escape; the key then has no other effect. */
  #closeByEscape = (event) => {
    if (event.key !== "Escape") return;
    this.#enlarge(null);
    event.preventDefault();
    event.stopPropagation();
  };
}
