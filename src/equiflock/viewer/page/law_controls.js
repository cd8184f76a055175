/** Controls for the options of a law, which take effect in flight. */

import { byId, make } from "./dom.js";
import { makeMenu, makeRow, makeSlider, makeSliderRow } from "./form_rows.js";
import { formatName, setInputValue } from "./scenario_menu.js";

/** A slider ends at this multiple of the default. */
const DEFAULT_MULTIPLE = 4;
/** End of a slider whose default is 0 or none, by the kind of the option. */
const FALLBACK_MAX = { number: 1, integer: 10 };
/** Minimum number of steps of a slider, except for integers. */
const MIN_STEPS = 80;

/** Return the ends and the step of an option's slider. */
export function computeRange({ kind, default: usual, must_be_positive }) {
  const far = DEFAULT_MULTIPLE * usual || FALLBACK_MAX[kind];
  const step = kind === "integer" ? 1 : roundDown(Math.abs(far) / MIN_STEPS);
  return { low: must_be_positive ? step : Math.min(far, 0), high: Math.max(far, 0), step };
}

/** Round down to 1, 2 or 5 times a power of 10. */
function roundDown(number) {
  const unit = 10 ** Math.floor(Math.log10(number));
  const digit = [5, 2, 1].find((each) => each * unit <= number * 1.0001);
  return Number((digit * unit).toPrecision(1));
}

export class LawControls {
  #id;
  #laws;
  #onChange;
  #shownName = null;
  /** Options that differ from their defaults. */
  #options = {};

  /**
   * @param {string} id id of the menu that selects the controller
   * @param {object[]} laws each with name, help and options: {name, kind, default, help, choices, may_be_none,
   *   must_be_positive}
   * @param {function(object): void} onChange called with all options that differ from their defaults
   */
  constructor(id, laws, onChange) {
    this.#id = id;
    this.#laws = laws;
    this.#onChange = onChange;
    byId(`${id}-defaults`).onclick = () => onChange({});
  }

  /** Show the options of a law; hide the controls if it has none. */
  show(name, options) {
    const law = this.#laws.find((each) => each.name === name);
    const offered = law?.options ?? [];
    byId(`${this.#id}-law`).hidden = !offered.length;
    if (this.#shownName !== name) {
      byId(`${this.#id}-help`).textContent = law?.help ?? "";
      byId(`${this.#id}-options`).replaceChildren(...offered.map((option) => this.#makeRow(option)));
    }
    this.#shownName = name;
    this.#options = { ...options };
    byId(`${this.#id}-defaults`).hidden = !Object.keys(options).length;
    for (const option of offered)
      this.#showValue(option, option.name in options ? options[option.name] : option.default);
  }

  #showValue({ name, kind, may_be_none }, value) {
    const input = byId(this.#idOf(name));
    // The server may have been started with a word for a numeric option: the box shows it as a placeholder.
    const isWord = typeof value === "string";
    const isNumber = ["number", "integer"].includes(kind);
    setInputValue(input, isNumber && isWord ? "" : value);
    if (!isNumber) return;
    input.placeholder = isWord ? value : may_be_none ? "none" : "";
    if (isWord) return;
    // A value from the box or a link may lie beyond the slider's end, which then moves; none is at the right end.
    const slider = byId(this.#idOf(name, "slider"));
    if (value !== null) [slider.min, slider.max] = [Math.min(slider.min, value), Math.max(slider.max, value)];
    slider.value = value ?? slider.max;
  }

  #makeRow(option) {
    const { name, kind, help, choices, may_be_none } = option;
    const id = this.#idOf(name);
    if (kind === "boolean" || kind === "choice") {
      const input = kind === "boolean" ? make("input", { id, type: "checkbox" }) : makeMenu(id, choices);
      input.onchange = () => this.#choose(option, kind === "boolean" ? input.checked : input.value);
      return makeRow(id, formatName(name), help, input);
    }
    const box = make("input", { id, type: "number", step: kind === "integer" ? 1 : "any", required: !may_be_none });
    box.onchange = () => {
      if (box.reportValidity()) this.#choose(option, box.value === "" ? null : box.valueAsNumber);
    };
    // Six digits remove the rounding error of a multiple of the step.
    const slide = (position) => this.#choose(option, Number(position.toPrecision(6)));
    const slider = makeSlider(this.#idOf(name, "slider"), computeRange(option), slide);
    slider.ariaLabel = formatName(name);
    const row = makeSliderRow(slider, formatName(name), help, box);
    row.querySelector("label").htmlFor = id;
    return row;
  }

  #choose({ name, default: usual }, value) {
    const { [name]: _, ...others } = this.#options;
    this.#onChange(value === usual ? others : { ...others, [name]: value });
  }

  #idOf(name, part = "option") {
    return `${this.#id}-${part}-${name}`;
  }
}
