/** Rows of the sidebar's forms: a label with inputs beside it. */

import { make } from "./player/dom.js";

/** Return a row with a label, for the element with this id, and inputs; `help` is the row's tooltip. */
export const makeRow = (id, text, help, ...inputs) =>
  make("div", { className: "row", title: help }, make("label", { htmlFor: id }, text), ...inputs);

/** Return a menu whose options have the words as values and texts. */
export const makeMenu = (id, words) => make("select", { id }, ...words.map((word) => new Option(word, word)));

/** Return a row with a slider and the element that shows its value. */
export const makeSliderRow = (slider, text, help, value) =>
  makeRow(slider.id, text, help, make("span", { className: "pair" }, slider, value));

/**
 * Return a slider.
 * @param {string} id
 * @param {{low?: number, high: number, step: number}} range
 * @param {function(number): void} onMove called with its position, repeatedly while it is dragged
 */
export function makeSlider(id, { low = 0, high, step }, onMove) {
  const input = make("input", { id, type: "range", min: low, max: high, step });
  input.oninput = () => onMove(input.valueAsNumber);
  return input;
}
