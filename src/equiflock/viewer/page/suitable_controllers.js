/** Controllers that suit a scenario: the one that it starts with, and the offer of one in place of another. */

import { make } from "./player/dom.js";
import { formatControllerName, formatName } from "./player/names.js";

/** The name of a controller without seed or options. */
const nameOf = (controller) => controller.split(":")[0];

/** What the server's welcome message says of scenarios and the controllers that suit them. */
export class SuitableControllers {
  #scenarios;
  #defaultController;
  /** Names of controllers of the package; others, such as files of weights, are not judged. */
  #bundled;

  /** @param {object} welcome the server's welcome message */
  constructor({ scenarios, laws, trained, default_controller }) {
    this.#scenarios = scenarios;
    this.#defaultController = default_controller;
    const bundledLaws = laws.filter(({ is_bundled }) => is_bundled).map(({ name }) => nameOf(name));
    this.#bundled = [...Object.keys(trained), ...bundledLaws];
  }

  /** Return the names of the controllers that suit a scenario, the best first; empty if any may. */
  list(scenario) {
    return this.#find(scenario)?.suitable_controllers ?? [];
  }

  /** Return the controller that a scenario starts with: the server's default if it suits. */
  chooseFor(scenario) {
    const suitable = this.list(scenario);
    return !suitable.length || suitable.includes(this.#defaultController) ? this.#defaultController : suitable[0];
  }

  /**
   * Return the setting's fields for another scenario: with a controller that suits it if the present one is that with
   * which the present scenario started, so that nobody chose it.
   */
  changeScenario({ scenario, controller }, next) {
    const fields = { scenario: next, options: {} };
    if (controller !== this.chooseFor(scenario)) return fields;
    return { ...fields, controller: this.chooseFor(next), controller_options: {} };
  }

  /** Return {text, controller}: what a scenario needs, and who does it; null if the controller suits or is unknown. */
  makeOffer(scenario, controller) {
    const suitable = this.list(scenario);
    if (!controller || !suitable.length || suitable.includes(nameOf(controller))) return null;
    if (!this.#bundled.includes(nameOf(controller))) return null;
    const { controller_requirement: requirement } = this.#find(scenario);
    return { text: `${formatName(scenario)} needs a controller that ${requirement}.`, controller: suitable[0] };
  }

  #find(scenario) {
    return this.#scenarios.find(({ name }) => name === scenario);
  }
}

/**
 * Show an offer in an element, or hide it if there is none.
 * @param {HTMLElement} place
 * @param {?{text: string, controller: string}} offer
 * @param {function(string): void} choose called with the controller when its button is pressed
 */
export function showOffer(place, offer, choose) {
  place.hidden = !offer;
  if (!offer) return;
  const button = { type: "button", onclick: () => choose(offer.controller) };
  place.replaceChildren(offer.text, make("button", button, `Use ${formatControllerName(offer.controller)}`));
}
