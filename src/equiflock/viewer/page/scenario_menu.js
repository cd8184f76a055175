/** The menu of scenarios, and inputs for the options of the selected one; the server sends both. */

import { byId, make } from "./player/dom.js";
import { makeMenu, makeRow } from "./form_rows.js";
import { formatName } from "./player/names.js";

/** Radio buttons for the scenarios, and a row of input for each option of the selected one. */
export class ScenarioMenu {
  #scenarios;
  #onChange;
  /** Options of the scenario shown that were set. */
  #options = {};
  #shownName = null;

  /**
   * @param {object[]} scenarios each with name, help and options: {name, kind, default, choices, help}
   * @param {function(object): void} onChange called with {scenario, options: {}} for another scenario, and with
   *   {options}, all that were set, for another value; not for an invalid number
   */
  constructor(scenarios, onChange) {
    this.#scenarios = scenarios;
    this.#onChange = onChange;
    byId("scenario").replaceChildren(
      make("legend", { className: "visually-hidden" }, "Scenario"),
      ...scenarios.map(({ name, help }) => this.#makeChoice(name, help)),
    );
  }

  /** Show a setting's scenario and its options, with defaults for those that are not set; `onChange` is not called. */
  show({ scenario, options }) {
    for (const input of byId("scenario").querySelectorAll("input")) input.checked = input.value === scenario;
    const offered = this.#scenarios.find(({ name }) => name === scenario)?.options ?? [];
    if (this.#shownName !== scenario)
      byId("options").replaceChildren(...offered.map((option) => this.#makeRow(option)));
    this.#shownName = scenario;
    this.#options = { ...options };
    for (const { name, default: usual } of offered) setInputValue(byId(`option-${name}`), options[name] ?? usual);
  }

  /** Return the radio button of a scenario; its options start at their defaults. */
  #makeChoice(name, help) {
    const input = make("input", { type: "radio", name: "scenario", value: name });
    input.onchange = () => this.#onChange({ scenario: name, options: {} });
    return make("label", { title: help }, input, make("span", {}, formatName(name)));
  }

  /** Return the row of an option: a menu, a checkbox or a number box, by its kind. */
  #makeRow({ name, kind, help, choices }) {
    const id = `option-${name}`;
    const box = { type: "number", step: kind === "integer" ? 1 : "any", required: true };
    const input =
      kind === "choice"
        ? makeMenu(id, choices)
        : make("input", { id, ...(kind === "boolean" ? { type: "checkbox" } : box) });
    input.onchange = () => {
      if (!input.reportValidity()) return;
      this.#options[name] = { boolean: input.checked, choice: input.value }[kind] ?? input.valueAsNumber;
      this.#onChange({ options: { ...this.#options } });
    };
    return makeRow(id, formatName(name), help, input);
  }
}

/** Set the value of a box, checkbox or menu without an event; a word that the menu lacks is added to it. */
export function setInputValue(input, value) {
  if (input instanceof HTMLSelectElement && ![...input.options].some((option) => option.value === value))
    input.append(new Option(value, value));
  if (input.type === "checkbox") input.checked = value;
  else input.value = value;
}
