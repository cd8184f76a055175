/** The menu of scenarios, and inputs for the options of the selected one; the server sends both. */

import { byId, make } from "./player/dom.js";
import { makeChoiceInput, makeRow, setInputValue } from "./form_rows.js";
import { formatName } from "./player/names.js";

/** Radio buttons for the scenarios, and a row of input for each option of the selected one. */
export class ScenarioMenu {
  #scenarios;
  #onOptions;
  /** Options of the scenario shown that were set. */
  #options = {};
  #shownName = null;

  /**
   * @param {object[]} scenarios each with name, help and options: {name, kind, default, choices, safe_pattern, help}
   * @param {function(string): void} onScenario called with the name of another scenario
   * @param {function(object): void} onOptions called with all options that were set, for another value; not for an
   *   invalid one
   */
  constructor(scenarios, onScenario, onOptions) {
    this.#scenarios = scenarios;
    this.#onOptions = onOptions;
    byId("scenario").replaceChildren(
      make("legend", { className: "visually-hidden" }, "Scenario"),
      ...scenarios.map(({ name, help }) => makeChoice(name, help, onScenario)),
    );
  }

  /**
   * Show a setting's scenario and its options, with defaults for those that are not set, but no inputs for options with
   * a name in `hidden`; no callback is called.
   */
  show({ scenario, options }, hidden = []) {
    for (const input of byId("scenario").querySelectorAll("input")) input.checked = input.value === scenario;
    const offered = this.#scenarios.find(({ name }) => name === scenario)?.options ?? [];
    if (this.#shownName !== scenario)
      byId("options").replaceChildren(...offered.map((option) => this.#makeRow(option)));
    this.#shownName = scenario;
    this.#options = { ...options };
    for (const { name, default: usual } of offered) {
      const input = byId(`option-${name}`);
      setInputValue(input, options[name] ?? usual);
      input.closest(".row").hidden = hidden.includes(name);
    }
  }

  /** Return the row of an option: a menu, a checkbox or a number box, by its kind. */
  #makeRow({ name, kind, help, choices, safe_pattern }) {
    const id = `option-${name}`;
    const choose = (value) => {
      this.#options[name] = value;
      this.#onOptions({ ...this.#options });
    };
    if (kind === "choice")
      return makeRow(id, formatName(name), help, makeChoiceInput(id, choices, safe_pattern, choose));
    const box = { type: "number", step: kind === "integer" ? 1 : "any", required: true };
    const input = make("input", { id, ...(kind === "boolean" ? { type: "checkbox" } : box) });
    input.onchange = () => {
      if (input.reportValidity()) choose(kind === "boolean" ? input.checked : input.valueAsNumber);
    };
    return makeRow(id, formatName(name), help, input);
  }
}

/** Return the radio button of a scenario. */
function makeChoice(name, help, onScenario) {
  const input = make("input", { type: "radio", name: "scenario", value: name });
  input.onchange = () => onScenario(name);
  return make("label", { title: help }, input, make("span", {}, formatName(name)));
}
