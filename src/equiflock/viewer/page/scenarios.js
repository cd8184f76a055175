/** The menu of scenarios, and boxes for the options of the chosen one: both are made from what the server tells. */

import { byId, make } from "./dom.js";
import { row } from "./rows.js";

/** A name for people: `clear_time` is Clear time. */
export const written = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll(/[_-]/g, " ");

export class ScenarioMenu {
  #scenarios;
  #onChange;
  /** Options that were chosen, of the scenario that is shown. */
  #options = {};
  #shown = null;

  /**
   * @param {object[]} scenarios each with its name, help and options: {name, kind, default, help}
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

  #row({ name, kind, help }) {
    const id = `option-${name}`;
    const box = { type: "number", step: kind === "whole" ? 1 : "any", required: true };
    const input = make("input", { id, ...(kind === "switch" ? { type: "checkbox" } : box) });
    input.onchange = () => {
      if (!input.reportValidity()) return;
      this.#options[name] = kind === "switch" ? input.checked : input.valueAsNumber;
      this.#onChange({ options: { ...this.#options } });
    };
    return row(id, written(name), help, input);
  }
}

/** Show a value in a box, or by a switch. */
export function fill(input, value) {
  if (input.type === "checkbox") input.checked = value;
  else input.value = value;
}
