/** The legend of lost messages, and the notice that there are too many edges to draw. */

import { hasEdges } from "./player/frames.js";

/** In a smaller flock, a picture without edges means that no agents are within reach of each other. */
const MIN_AGENTS_FOR_NOTICE = 1000;

/** Tells the user about lost messages and about edges that are not drawn. */
export class EdgeNotices {
  #notices;
  #screen;
  #hasNotified = false;

  /**
   * @param {import("./notices.js").Notices} notices
   * @param {import("./player/screen.js").Screen} screen
   */
  constructor(notices, screen) {
    this.#notices = notices;
    this.#screen = screen;
  }

  /** Show the legend of lost messages if edges are drawn and the environment, if known, loses or delays messages. */
  updateLegend(areEdgesShown, environment) {
    this.#screen.showLostLegend(areEdgesShown && Boolean(environment?.packet_loss || environment?.delay));
  }

  /** Allow the notice again, for another flight or other display options. */
  reset() {
    this.#hasNotified = false;
  }

  /** Show a notice, once until `reset`, if a panel with more than MIN_AGENTS_FOR_NOTICE agents has no edges. */
  notifyHiddenEdges(panels) {
    const hidden = panels.some(
      ({ agents, edges, lostEdges }) => agents > MIN_AGENTS_FOR_NOTICE && !hasEdges(edges) && !hasEdges(lostEdges),
    );
    if (!hidden || this.#hasNotified) return;
    this.#hasNotified = true;
    this.#notices.show("The communication graph has too many edges to draw.");
  }
}
