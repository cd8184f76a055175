/** Shows a flight: draws a picture whenever it would change, and updates the metrics beside it. */

import { Camera } from "./camera.js";
import { Display } from "./display.js";
import { make } from "./dom.js";
import { History } from "./history.js";
import { InspectionLayer } from "./inspection.js";
import { listLandmarks } from "./marks.js";
import { computeVisibleSpacing, Scene } from "./scene.js";

const METRICS_INTERVAL_MS = 66;
const RATE_INTERVAL_MS = 1000;
/** Pictures are drawn for this time after an input, as the camera may be easing. */
const REDRAW_MS = 3000;
const MAX_EASE_SECONDS = 0.1;

/** Canvas, cameras, titles, metrics and curves of the flight that is shown. */
export class Screen {
  /** One for each panel; empty before the first flight. */
  cameras = [];
  /** Names of the panels' controllers, without options that are set in flight. */
  controllers = [];
  /** The communication radius R. */
  commRadius = 1;
  /** Whether a pointer is pressed, which stops the cameras. */
  isHeld = false;
  /** Number of pictures drawn since the page was opened. */
  pictureCount = 0;
  /** Pictures drawn per second; 0 while none are. */
  rate = 0;
  #display;
  #history = new History();
  #scene;
  #picture = { frame: null, ahead: 0 };
  #lastMetrics = { frame: null, at: 0 };
  #rateSample = { at: 0, pictureCount: 0 };
  #inspectionLayer;
  #onUpdate;
  #redrawUntil = 0;
  /** Css pixels above and below the flock that titles and buttons may cover, from the style sheet. */
  #covered = [0, 0];

  /**
   * @param {HTMLElement} root parent of the canvas, which is created if there is none, and of titles and legends
   * @param {?HTMLElement} plots parent of the curves; null for none
   * @param {function(Screen): void} onUpdate called when metrics or `rate` have been updated
   * @throws {Error} if WebGL2 is unavailable
   */
  constructor(root, plots = null, onUpdate = () => {}) {
    const canvas = root.querySelector("canvas") ?? root.appendChild(make("canvas", { className: "scene" }));
    this.#scene = new Scene(canvas);
    this.#display = new Display(canvas, plots);
    this.#inspectionLayer = new InspectionLayer(canvas);
    this.#onUpdate = onUpdate;
    canvas.addEventListener("webglcontextrestored", () => this.requestRedraw());
    new ResizeObserver(() => {
      this.#covered = getComputedStyle(canvas).getPropertyValue("--covered").trim().split(" ").map(Number);
      this.#scene.resize();
      if (this.cameras.length) this.#display.positionTitles(this.viewports);
      this.requestRedraw();
    }).observe(canvas);
  }

  /** The last picture: its frame, or null, and the simulated seconds that it is ahead of the frame. */
  get picture() {
    return this.#picture;
  }

  /** Duration of a saved flight, in seconds; null for a live one. Set it after `begin`. */
  get duration() {
    return this.#history.duration;
  }

  set duration(duration) {
    this.#history.duration = duration;
  }

  /** Rectangles of the panels on the canvas, in css pixels. */
  get viewports() {
    return this.#scene.computeViewports(this.cameras.length);
  }

  /** Colours of the picture, "dark" or "light"; style sheets have those of the other elements. */
  get theme() {
    return this.#scene.theme;
  }

  set theme(theme) {
    this.#scene.theme = theme;
    this.requestRedraw();
  }

  /** Give the WebGL context back, of which a browser has few; nothing is drawn until `restore`. */
  release() {
    this.#scene.release();
  }

  /** Take a WebGL context again after `release`. */
  restore() {
    this.#scene.restore();
  }

  /**
   * Prepare to show another flight: new cameras and titles, no trails or curves. `show` draws the first picture.
   * @param {{controller: string, scenario: string, overlay: ?object}[]} flights one for each panel; overlay: the
   *   server's texts for what the scenario shows
   * @param {number} commRadius the communication radius R
   */
  begin(flights, commRadius) {
    this.commRadius = commRadius;
    this.cameras = flights.map(() => new Camera(commRadius));
    this.controllers = flights.map(({ controller }) => controller);
    this.#picture = { frame: null, ahead: 0 };
    this.#history.clear();
    this.#scene.clearTrails();
    this.#display.begin(flights, (panel) => {
      this.cameras[panel].showAll();
      this.requestRedraw();
    });
    this.#display.positionTitles(this.viewports);
  }

  /** Return the name of a group, as the legend has it. */
  nameGroup(group) {
    return this.#display.nameGroup(group);
  }

  /** Show or hide the legend of lost messages. */
  showLostLegend(isShown) {
    this.#display.showLostLegend(isShown);
  }

  /** Add metrics to the curves: metricValues[panel][metric] at a simulated time in seconds. */
  addMetrics(time, metricValues) {
    this.#history.add(time, metricValues);
  }

  /** Let `show` draw for REDRAW_MS from now on, even if the picture does not change, and update the metrics. */
  requestRedraw() {
    this.#redrawUntil = performance.now() + REDRAW_MS;
    this.#lastMetrics.frame = null;
  }

  /**
   * Show the flight `ahead` simulated seconds after a frame. An unchanged picture is not drawn again: that would delay
   * frames on their way. Metrics are updated every METRICS_INTERVAL_MS at most, the frame rate every RATE_INTERVAL_MS.
   * @param {object} frame
   * @param {number} ahead simulated seconds
   * @param {number} now milliseconds
   * @param {number} seconds real time since the last call
   * @param {object} look edges, trails and highlight, as for the scene, and inspection, as for InspectionLayer
   */
  show(frame, ahead, now, seconds, look) {
    if (frame !== this.#picture.frame || ahead !== this.#picture.ahead || now < this.#redrawUntil) {
      this.#picture = { frame, ahead };
      this.#draw(frame, ahead, Math.min(seconds, MAX_EASE_SECONDS), look);
    }
    if (frame !== this.#lastMetrics.frame && now - this.#lastMetrics.at > METRICS_INTERVAL_MS) {
      this.#lastMetrics = { frame, at: now };
      this.#display.show(frame, this.#history, this.theme);
      const views = this.viewports;
      frame.panels.forEach((panel, i) => {
        this.#display.showVisibility(i, this.cameras[i].isFlockVisible(panel, views[i]));
      });
      this.#onUpdate(this);
    }
    if (!this.#rateSample.at) this.#rateSample.at = now;
    const elapsed = now - this.#rateSample.at;
    if (elapsed > RATE_INTERVAL_MS) {
      this.rate = Math.round((1000 * (this.pictureCount - this.#rateSample.pictureCount)) / elapsed);
      this.#rateSample = { at: now, pictureCount: this.pictureCount };
      this.#onUpdate(this);
    }
  }

  /** Move the cameras for `seconds` of real time, and draw the picture. */
  #draw(frame, ahead, seconds, { inspection = null, ...look }) {
    const views = this.viewports;
    frame.panels.forEach((panel, i) => {
      this.cameras[i].isHeld = this.isHeld;
      this.cameras[i].trackFlock(panel, panel.hasEnded ? 0 : ahead, listLandmarks(panel));
      this.cameras[i].easeToFlock(seconds, views[i], this.#covered);
    });
    Camera.shareScale(this.cameras);
    this.#display.showGridSpacing(computeVisibleSpacing(this.cameras[0].scale, this.commRadius) / this.commRadius);
    this.#scene.draw(frame, ahead, this.cameras, { ...look, commRadius: this.commRadius });
    const style = { commRadius: this.commRadius, theme: this.theme };
    this.#inspectionLayer.draw(frame, ahead, this.cameras, views, style, inspection);
    this.pictureCount += 1;
  }
}
