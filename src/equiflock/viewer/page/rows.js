/** Rows of the sidebar: a label, and beside it what it is about. */

import { make } from "./dom.js";

/** A row whose label belongs to the element of an id. */
export const row = (id, text, help, ...beside) =>
  make("div", { className: "row", title: help }, make("label", { htmlFor: id }, text), ...beside);

/** A menu of words. */
export const makeMenu = (id, words) => make("select", { id }, ...words.map((word) => new Option(word, word)));

/** A row with a slider, and its value beside it. */
export const sliderRow = (slider, text, help, value) =>
  row(slider.id, text, help, make("span", { className: "pair" }, slider, value));

/**
 * A slider.
 * @param {string} id
 * @param {{low?: number, high: number, step: number}} range
 * @param {function(number): void} onMove called with its place, again and again while a hand moves it
 */
export function makeSlider(id, { low = 0, high, step }, onMove) {
  const input = make("input", { id, type: "range", min: low, max: high, step });
  input.oninput = () => onMove(input.valueAsNumber);
  return input;
}
