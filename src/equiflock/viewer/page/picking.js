/** Finds what is under the pointer: a panel and world coordinates, an agent, an obstacle. */

import { findNearestAgent } from "./frames.js";

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

  /** Return the panel under an event, unless one is given, and the event's place in the panel and in the world. */
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

  /** Return the index of the agent drawn within `reach` css pixels of a place, or -1. */
  pickAgent({ panel, at, camera }, reach) {
    const { frame, ahead } = this.#view.screen.picture;
    const { index, distance } = findNearestAgent(frame.panels[panel], at, ahead);
    return distance * camera.scale <= reach ? index : -1;
  }

  /** Return the index of the disk under a place, or -1, and the offset of the place from the disk's centre. */
  pickDisk({ panel, at }) {
    for (let index = this.#view.frame.panels[panel].disks.length / 3 - 1; index >= 0; index--) {
      const { x, y, radius } = this.disk(panel, index);
      const gripOffset = [at[0] - x, at[1] - y];
      if (Math.hypot(...gripOffset) <= radius) return { index, gripOffset };
    }
    return { index: -1 };
  }

  /** Return a disk in world coordinates. */
  disk(panel, index) {
    const { disks, origin } = this.#view.frame.panels[panel];
    const [x, y, radius] = disks.subarray(3 * index);
    return { x: origin[0] + x, y: origin[1] + y, radius };
  }
}
