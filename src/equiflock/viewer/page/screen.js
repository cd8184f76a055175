/** What is seen of a flight: the picture, drawn when it would be another one, and the numbers beside it. */

import { Camera } from "./camera.js";
import { Display } from "./display.js";
import { byId } from "./dom.js";
import { History } from "./plots.js";
import { Scene, seenSpacing } from "./scene.js";

const NUMBERS_MS = 66;
const RATE_MS = 1000;
/** How long pictures are drawn after somebody has moved something: the camera may glide. */
const AWAKE_MS = 3000;
const LONGEST_GLIDE = 0.1;

export class Screen {
  /** One for each panel; none until a frame is shown. */
  cameras = [];
  /** The communication radius R. */
  commRadius = 1;
  /** Whether a hand is at work: cameras wait until it is done. */
  held = false;
  /** Of the whole flight, if it is a saved one, in seconds. */
  duration = null;
  /** How many pictures were drawn since the page was opened. */
  drawn = 0;
  #display = new Display();
  #history = new History();
  #scene;
  #shown = { frame: null, ahead: 0 };
  #numbered = { frame: null, at: 0 };
  #rate = { at: 0, drawn: 0 };
  #awake = 0;
  /** Css pixels above and below the flock that something may lie on, as the style sheet says. */
  #covered = 0;

  constructor(canvas) {
    this.#scene = new Scene(canvas);
    canvas.addEventListener("webglcontextrestored", () => this.wake());
    new ResizeObserver(() => {
      this.#covered = parseFloat(getComputedStyle(canvas).getPropertyValue("--covered"));
      this.#scene.resize();
      if (this.cameras.length) this.#display.place(this.viewports);
      this.wake();
    }).observe(canvas);
  }

  /** The picture that is seen: its frame, null if there is none yet, and how far it is ahead of that. */
  get shown() {
    return this.#shown;
  }

  /** Where the panels are on the canvas. */
  get viewports() {
    return this.#scene.viewports(this.cameras.length);
  }

  get theme() {
    return this.#scene.theme;
  }

  set theme(theme) {
    document.documentElement.dataset.theme = this.#scene.theme = theme;
    this.wake();
  }

  /**
   * Begin to show another flight.
   * @param {{controller: string, scenario: string}[]} flights one for each panel
   * @param {number} commRadius the communication radius R
   */
  begin(flights, commRadius) {
    this.commRadius = commRadius;
    this.cameras = flights.map(() => new Camera(commRadius));
    this.#shown = { frame: null, ahead: 0 };
    this.#history.clear();
    this.#scene.forgetTrails();
    this.#display.begin(flights, (panel) => {
      this.cameras[panel].showAll();
      this.wake();
    });
    this.#display.place(this.viewports);
  }

  /** Add numbers to the curves: those of each panel at a time. */
  note(time, numbers) {
    this.#history.add(time, numbers);
  }

  /** Draw for a while, though nothing flies. */
  wake() {
    this.#awake = performance.now() + AWAKE_MS;
    this.#numbered.frame = null;
  }

  /**
   * Show a frame as it is some time after it. The same picture again would only hold up frames that are on their way.
   * @param {number} now milliseconds
   * @param {number} seconds since the last call
   * @param {object} look edges, trails and highlight, as for the scene
   */
  show(frame, ahead, now, seconds, look) {
    if (frame !== this.#shown.frame || ahead !== this.#shown.ahead || now < this.#awake) {
      this.#shown = { frame, ahead };
      this.#draw(frame, ahead, Math.min(seconds, LONGEST_GLIDE), look);
    }
    if (frame !== this.#numbered.frame && now - this.#numbered.at > NUMBERS_MS) {
      this.#numbered = { frame, at: now };
      this.#display.show(frame, this.#history, this.duration, this.theme);
      const views = this.viewports;
      frame.panels.forEach((panel, i) => this.#display.tellSight(i, this.cameras[i].sees(panel, views[i])));
      this.#display.tellGrid(seenSpacing(this.cameras[0].scale, this.commRadius) / this.commRadius);
      byId("follow").setAttribute("aria-pressed", this.cameras[0].following);
    }
    if (!this.#rate.at) this.#rate.at = now;
    if (now - this.#rate.at > RATE_MS) {
      const rate = Math.round((1000 * (this.drawn - this.#rate.drawn)) / (now - this.#rate.at));
      byId("rate").textContent = rate ? `${rate} fps` : "";
      this.#rate = { at: now, drawn: this.drawn };
    }
  }

  #draw(frame, ahead, seconds, look) {
    const views = this.viewports;
    frame.panels.forEach((panel, i) => {
      this.cameras[i].held = this.held;
      this.cameras[i].watch(panel, panel.still ? 0 : ahead);
      this.cameras[i].glide(seconds, views[i], this.#covered);
    });
    Camera.share(this.cameras);
    this.#scene.draw(frame, ahead, this.cameras, { ...look, commRadius: this.commRadius });
    this.drawn += 1;
  }
}
