/** The menu of scenarios, and boxes for the options of the chosen one: both are made from what the server tells. */

import { byId, make } from "./dom.js";
import { makeMenu, row } from "./rows.js";

/** A name for people: `clear_time` is Clear time. */
export const written = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll(/[_-]/g, " ");

export class ScenarioMenu {
  #scenarios;
  #onChange;
  /** Options that were chosen, of the scenario that is shown. */
  #options = {};
  #shown = null;

  /**
   * @param {object[]} scenarios each with its name, help and options: {name, kind, default, choices, help}
   * @param {function(object): void} onChange called with the fields of the setting that were changed
   */
  constructor(scenarios, onChange) {
    this.#scenarios = scenarios;
    this.#onChange = onChange;
    byId("scenario").replaceChildren(
      make("legend", { className: "visually-hidden" }, "Scenario"),
      ...scenarios.map(({ name, help }) => this.#choice(name, help)),
    );
  }

  /** Show the scenario of a setting, and its options. */
  show({ scenario, options }) {
    for (const input of byId("scenario").querySelectorAll("input")) input.checked = input.value === scenario;
    const offered = this.#scenarios.find(({ name }) => name === scenario)?.options ?? [];
    if (this.#shown !== scenario) byId("options").replaceChildren(...offered.map((option) => this.#row(option)));
    this.#shown = scenario;
    this.#options = { ...options };
    for (const { name, default: usual } of offered) fill(byId(`option-${name}`), options[name] ?? usual);
  }

  #choice(name, help) {
    const input = make("input", { type: "radio", name: "scenario", value: name });
    input.onchange = () => this.#onChange({ scenario: name, options: {} });
    return make("label", { title: help }, input, make("span", {}, written(name)));
  }

  #row({ name, kind, help, choices }) {
    const id = `option-${name}`;
    const box = { type: "number", step: kind === "whole" ? 1 : "any", required: true };
    const input =
      kind === "choice"
        ? makeMenu(id, choices)
        : make("input", { id, ...(kind === "switch" ? { type: "checkbox" } : box) });
    input.onchange = () => {
      if (!input.reportValidity()) return;
      this.#options[name] = { switch: input.checked, choice: input.value }[kind] ?? input.valueAsNumber;
      this.#onChange({ options: { ...this.#options } });
    };
    return row(id, written(name), help, input);
  }
}

/** Show a value in a box, by a switch, or in a menu, to which a word is added that it does not have. */
export function fill(input, value) {
  if (input instanceof HTMLSelectElement && ![...input.options].some((option) => option.value === value))
    input.append(new Option(value, value));
  if (input.type === "checkbox") input.checked = value;
  else input.value = value;
}
