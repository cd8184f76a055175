/** What the page says about the lines between agents that hear each other. */

import { byId } from "./dom.js";

/** Below so many agents no line at all means that nobody hears anybody. */
const FEW = 1000;

export class Lines {
  #notices;
  #told = false;

  constructor(notices) {
    this.#notices = notices;
  }

  /** Explain red lines where there may be some: lines are shown, and the world, if there is one, loses messages. */
  explain(shown, world) {
    byId("lost").hidden = !shown || !(world?.loss || world?.delay);
  }

  /** Another flight or another look: what was said may be said again. */
  begin() {
    this.#told = false;
  }

  /** Say once why a picture that should have lines has none. */
  note(panels) {
    const hidden = panels.some(({ agents, edges, lost }) => agents > FEW && !edges.length && !lost.length);
    if (!hidden || this.#told) return;
    this.#told = true;
    this.#notices.tell("So many hear each other that lines would only hide them.");
  }
}
