/** The legend of lost messages, and the notice that there are too many edges to draw. */

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

  /** Show a notice, once until `reset`, if a panel has too many edges to draw. */
  notifyHiddenEdges(panels) {
    if (this.#hasNotified || !panels.some(({ hidesEdges }) => hidesEdges)) return;
    this.#hasNotified = true;
    this.#notices.show("The communication graph has too many edges to draw.");
  }
}
