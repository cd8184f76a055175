/** Finds what is under the pointer: a panel and world coordinates, an agent, an obstacle. */

import { findNearestAgent } from "./player/frames.js";

/** Finds panels, agents and obstacles by their place on the canvas; `view` supplies frame, picture and cameras. */
export class Picker {
  #canvas;
  #view;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./view.js").View} view
   */
  constructor(canvas, view) {
    this.#canvas = canvas;
    this.#view = view;
  }

  /**
   * Return the place of an event: its panel with viewport and camera, css pixels px, py from the panel's top left, and
   * world coordinates `at`.
   * @param {{clientX: number, clientY: number}} event
   * @param {number} [given] panel to use instead of the one under the event; outside of all panels the first is used
   */
  locate(event, given) {
    const bounds = this.#canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const views = this.#view.screen.viewports;
    const contains = (v) => x >= v.x && x < v.x + v.width && y >= v.y && y < v.y + v.height;
    const panel = given ?? Math.max(views.findIndex(contains), 0);
    const viewport = views[panel];
    const px = x - viewport.x;
    const py = y - viewport.y;
    const camera = this.#view.screen.cameras[panel];
    return { panel, viewport, px, py, camera, at: camera.toWorld(px, py, viewport) };
  }

  /** Return the index of the agent drawn nearest to a place, or -1 if none is within `reach` css pixels. */
  pickAgent({ panel, at, camera }, reach) {
    const { frame, ahead } = this.#view.screen.picture;
    const { index, distance } = findNearestAgent(frame.panels[panel], at, ahead);
    return distance * camera.scale <= reach ? index : -1;
  }

  /**
   * Return {index, gripOffset} of the disk under a place, the last if several are; gripOffset is the place minus the
   * disk's centre. Return {index: -1} if there is none.
   */
  pickDisk({ panel, at }) {
    for (let index = this.#view.frame.panels[panel].disks.length / 3 - 1; index >= 0; index--) {
      const { x, y, radius } = this.getDisk(panel, index);
      const gripOffset = [at[0] - x, at[1] - y];
      if (Math.hypot(...gripOffset) <= radius) return { index, gripOffset };
    }
    return { index: -1 };
  }

  /** Return {x, y, radius} of a panel's disk in world coordinates. */
  getDisk(panel, index) {
    const { disks, origin } = this.#view.frame.panels[panel];
    const [x, y, radius] = disks.subarray(3 * index);
    return { x: origin[0] + x, y: origin[1] + y, radius };
  }
}
