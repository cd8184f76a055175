/** The law that flies: sliders for its numbers, which take effect at once. */

import { byId, make } from "./dom.js";
import { makeMenu, makeSlider, row, sliderRow } from "./rows.js";
import { fill, written } from "./scenarios.js";

/** Sliders go from 0 to so many times the usual value. */
const TIMES_USUAL = 4;
/** How far they go where the usual value is 0, or none: a number, or a whole one. */
const FAR = { number: 1, whole: 10 };
/** Sliders have at least so many steps. */
const FINE = 80;

/** From where to where the slider of a number goes, in which steps. */
export function rangeOf({ kind, default: usual, above_zero }) {
  const far = TIMES_USUAL * usual || FAR[kind];
  const step = kind === "whole" ? 1 : roundBelow(Math.abs(far) / FINE);
  return { low: above_zero ? step : Math.min(far, 0), high: Math.max(far, 0), step };
}

/** The largest number of one digit, 1, 2 or 5, that is not above a number. */
function roundBelow(number) {
  const unit = 10 ** Math.floor(Math.log10(number));
  const digit = [5, 2, 1].find((each) => each * unit <= number * 1.0001);
  return Number((digit * unit).toPrecision(1));
}

export class LawControls {
  #id;
  #laws;
  #onChange;
  #shown = null;
  /** Options that are not as usual. */
  #options = {};

  /**
   * @param {string} id of the menu that chooses the controller
   * @param {object[]} laws each with its name, help and options: {name, kind, default, help, choices, may_be_none,
   *   above_zero}
   * @param {function(object): void} onChange called with all options that are not as usual
   */
  constructor(id, laws, onChange) {
    this.#id = id;
    this.#laws = laws;
    this.#onChange = onChange;
    byId(`${id}-defaults`).onclick = () => onChange({});
  }

  /** Show the law of a name with its options; nothing, if it has none. */
  show(name, options) {
    const law = this.#laws.find((each) => each.name === name);
    const offered = law?.options ?? [];
    byId(`${this.#id}-law`).hidden = !offered.length;
    if (this.#shown !== name) {
      byId(`${this.#id}-help`).textContent = law?.help ?? "";
      byId(`${this.#id}-numbers`).replaceChildren(...offered.map((option) => this.#row(option)));
    }
    this.#shown = name;
    this.#options = { ...options };
    byId(`${this.#id}-defaults`).hidden = !Object.keys(options).length;
    for (const option of offered) this.#fill(option, option.name in options ? options[option.name] : option.default);
  }

  #fill({ name, kind, may_be_none }, value) {
    const input = byId(this.#idOf(name));
    // The server may have begun with a word where there usually is a number: it stays until a number is chosen.
    const isWord = typeof value === "string";
    const isNumber = ["number", "whole"].includes(kind);
    fill(input, isNumber && isWord ? "" : value);
    if (!isNumber) return;
    input.placeholder = isWord ? value : may_be_none ? "none" : "";
    if (isWord) return;
    // A number may have come by its box or by a link from beyond the slider's end; none is at the end.
    const slider = byId(this.#idOf(name, "slider"));
    if (value !== null) [slider.min, slider.max] = [Math.min(slider.min, value), Math.max(slider.max, value)];
    slider.value = value ?? slider.max;
  }

  #row(option) {
    const { name, kind, help, choices, may_be_none } = option;
    const id = this.#idOf(name);
    if (kind === "switch" || kind === "choice") {
      const input = kind === "switch" ? make("input", { id, type: "checkbox" }) : makeMenu(id, choices);
      input.onchange = () => this.#choose(option, kind === "switch" ? input.checked : input.value);
      return row(id, written(name), help, input);
    }
    const box = make("input", { id, type: "number", step: kind === "whole" ? 1 : "any", required: !may_be_none });
    box.onchange = () => {
      if (box.reportValidity()) this.#choose(option, box.value === "" ? null : box.valueAsNumber);
    };
    // Six digits, without what rounding adds to a multiple of a step.
    const slide = (place) => this.#choose(option, Number(place.toPrecision(6)));
    const slider = makeSlider(this.#idOf(name, "slider"), rangeOf(option), slide);
    slider.ariaLabel = written(name);
    const made = sliderRow(slider, written(name), help, box);
    made.querySelector("label").htmlFor = id;
    return made;
  }

  #choose({ name, default: usual }, value) {
    const { [name]: _, ...others } = this.#options;
    this.#onChange(value === usual ? others : { ...others, [name]: value });
  }

  #idOf(name, part = "option") {
    return `${this.#id}-${part}-${name}`;
  }
}
