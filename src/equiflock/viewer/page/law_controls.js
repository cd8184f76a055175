/** Controls for the options of a law, which take effect in flight. */

import { byId, make } from "./player/dom.js";
import { makeChoiceInput, makeRow, makeSlider, makeSliderRow, setInputValue } from "./form_rows.js";
import { formatName } from "./player/names.js";

/** A slider ends at this multiple of the default. */
const DEFAULT_MULTIPLE = 4;
/** End of a slider whose default is 0 or none, by the kind of the option. */
const FALLBACK_MAX = { number: 1, integer: 10 };
/** Minimum number of steps of a slider, except for integers. */
const MIN_STEPS = 80;

/**
 * Return {low, high, step} of a numeric option's slider: from 0, or one step if 0 is refused, to 4 times the default,
 * or to FALLBACK_MAX if the default is 0 or null. For a negative default it ends at 0.
 */
export function computeRange({ kind, default: usual, must_be_positive }) {
  const far = DEFAULT_MULTIPLE * usual || FALLBACK_MAX[kind];
  const step = kind === "integer" ? 1 : roundDown(Math.abs(far) / MIN_STEPS);
  return { low: must_be_positive ? step : Math.min(far, 0), high: Math.max(far, 0), step };
}

/** Round a positive number down to 1, 2 or 5 times a power of 10. */
function roundDown(number) {
  const unit = 10 ** Math.floor(Math.log10(number));
  const digit = [5, 2, 1].find((each) => each * unit <= number * 1.0001);
  return Number((digit * unit).toPrecision(1));
}

/** The description of one panel's controller and, if it is a law, inputs for its options. */
export class LawControls {
  #id;
  #laws;
  #networks;
  #onChange;
  #shownName = null;
  /** Options that differ from their defaults. */
  #options = {};

  /**
   * @param {string} id id of the menu that selects the controller
   * @param {object} welcome the server's welcome message: `laws`, each with name, help and options: {name, kind, default,
   *   help, choices, safe_pattern, may_be_none, must_be_positive}; `networks`, a description for each name or file
   * @param {function(object): void} onChange called with all options that differ from their defaults, repeatedly while
   *   a slider is dragged; {} if the user restores the defaults
   */
  constructor(id, { laws, networks }, onChange) {
    this.#id = id;
    this.#laws = laws;
    this.#networks = networks;
    this.#onChange = onChange;
    byId(`${id}-defaults`).onclick = () => onChange({});
  }

  /**
   * Show what a controller is, and the values of a law's options (those not given: defaults), first those with a name
   * in `shared`.
   */
  show(name, options, shared = []) {
    const law = this.#laws.find((each) => each.name === name);
    const offered = law?.options ?? [];
    // A network's name may end with the seed of its training.
    const help = law?.help ?? this.#networks[name] ?? this.#networks[name?.replace(/:\d+$/, "")] ?? "";
    byId(`${this.#id}-law`).hidden = !offered.length;
    if (this.#shownName !== name) {
      byId(`${this.#id}-help`).textContent = help;
      byId(`${this.#id}-help`).hidden = !help;
      byId(`${this.#id}-options`).replaceChildren(...offered.map((option) => this.#makeRow(option)));
    }
    this.#shownName = name;
    this.#options = { ...options };
    byId(`${this.#id}-defaults`).hidden = !Object.keys(options).length;
    for (const option of offered) {
      this.#showValue(option, option.name in options ? options[option.name] : option.default);
      byId(this.#idOf(option.name)).closest(".row").classList.toggle("shared", shared.includes(option.name));
    }
  }

  /** Show the value of an option; null, for none, is an empty box and the right end of the slider. */
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

  /** Return the row of an option: a checkbox, a menu, or a slider with a number box. */
  #makeRow(option) {
    const { name, kind, help, choices, safe_pattern, may_be_none } = option;
    const id = this.#idOf(name);
    if (kind === "choice") {
      const input = makeChoiceInput(id, choices, safe_pattern, (word) => this.#choose(option, word));
      return makeRow(id, formatName(name), help, input);
    }
    if (kind === "boolean") {
      const input = make("input", { id, type: "checkbox" });
      input.onchange = () => this.#choose(option, input.checked);
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

  /** Report all options with another value of one; a default value is left out. */
  #choose({ name, default: usual }, value) {
    const { [name]: _, ...others } = this.#options;
    this.#onChange(value === usual ? others : { ...others, [name]: value });
  }

  /** Return the element id of an option's input; of its slider if `part` is "slider". */
  #idOf(name, part = "option") {
    return `${this.#id}-${part}-${name}`;
  }
}
