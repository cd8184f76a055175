/** What is under the pointer: a place in a panel and in the world, an agent, an obstacle. */

import { nearestAgent } from "./frames.js";

export class Aim {
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

  /** Which panel an event is over, unless one is given, and where in the panel and in the world that is. */
  place(event, given) {
    const bounds = this.#canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const views = this.#view.screen.viewports;
    const over = (v) => x >= v.x && x < v.x + v.width && y >= v.y && y < v.y + v.height;
    const panel = given ?? Math.max(views.findIndex(over), 0);
    const viewport = views[panel];
    const px = x - viewport.x;
    const py = y - viewport.y;
    const camera = this.#view.screen.cameras[panel];
    return { panel, viewport, px, py, camera, at: camera.toWorld(px, py, viewport) };
  }

  /** The number of the agent that is seen within so many css pixels of a place, or -1. */
  agentAt({ panel, at, camera }, reach) {
    const { frame, ahead } = this.#view.screen.shown;
    const { number, distance } = nearestAgent(frame.panels[panel], at, ahead);
    return distance * camera.scale <= reach ? number : -1;
  }

  /** The number of the disk under a place, or -1, and how it is held. */
  diskAt({ panel, at }) {
    for (let number = this.#view.frame.panels[panel].disks.length / 3 - 1; number >= 0; number--) {
      const { x, y, radius } = this.disk(panel, number);
      const hold = [at[0] - x, at[1] - y];
      if (Math.hypot(...hold) <= radius) return { number, hold };
    }
    return { number: -1 };
  }

  /** A disk in world coordinates. */
  disk(panel, number) {
    const { disks, origin } = this.#view.frame.panels[panel];
    const [x, y, radius] = disks.subarray(3 * number);
    return { x: origin[0] + x, y: origin[1] + y, radius };
  }
}
