/** Rows of the sidebar's forms: a label with inputs beside it. */

import { make } from "./player/dom.js";

const MAX_WORD_LENGTH = 100;

/** Return a row with a label, for the element with this id, and inputs; `help` is the row's tooltip. */
export const makeRow = (id, text, help, ...inputs) =>
  make("div", { className: "row", title: help }, make("label", { htmlFor: id }, text), ...inputs);

/** Value of the entry of a menu that opens the box for another word. */
const OTHER_WORD = "";

/**
 * Return a menu of words and, if there is a pattern, an entry that opens a box for another word that matches it.
 * @param {string} id id of the menu
 * @param {string[]} words
 * @param {string} pattern regular expression; "" for none
 * @param {function(string): void} onChoose called with a word; not for one that does not match
 */
export function makeChoiceInput(id, words, pattern, onChoose) {
  const menu = make("select", { id }, ...words.map((word) => new Option(word, word)));
  menu.onchange = () => onChoose(menu.value);
  if (!pattern) return menu;
  menu.append(new Option("word …", OTHER_WORD));
  const box = make("input", {
    id: `${id}-word`,
    type: "text",
    pattern,
    required: true,
    hidden: true,
    autocomplete: "off",
  });
  Object.assign(box, { ariaLabel: "Word", placeholder: "WORD", spellcheck: false, maxLength: MAX_WORD_LENGTH });
  box.autocapitalize = "characters";
  box.oninput = () => {
    if (!box.validity.valid) box.value = box.value.toUpperCase();
  };
  box.onchange = () => {
    if (box.reportValidity()) onChoose(box.value);
  };
  menu.onchange = () => {
    box.hidden = menu.value !== OTHER_WORD;
    if (box.hidden) onChoose(menu.value);
    else setTimeout(() => box.focus()); // after the page has returned the focus to the flock
  };
  menu.wordBox = box; // for `setInputValue`
  return make("span", { className: "pair word" }, menu, box);
}

/** Set the value of a box, checkbox or menu without an event; a word that the menu lacks is in its box, or added. */
export function setInputValue(input, value) {
  if (input.type === "checkbox") input.checked = value;
  else if (input instanceof HTMLSelectElement) setMenuValue(input, value);
  else input.value = value;
}

/** Set the value of a menu, which may have a box for other words. */
function setMenuValue(menu, value) {
  const isListed = [...menu.options].some((option) => option.value === value);
  if (!isListed && !menu.wordBox) menu.append(new Option(value, value));
  menu.value = isListed || !menu.wordBox ? value : OTHER_WORD;
  if (!menu.wordBox || document.activeElement === menu.wordBox) return;
  menu.wordBox.hidden = isListed;
  menu.wordBox.value = isListed ? "" : value;
}

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
