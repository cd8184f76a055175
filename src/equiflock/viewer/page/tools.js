/** What a hand does to the flock: mouse, pen, fingers and keys on the canvas. */

import { LEADER } from "./frames.js";

/** A drag of so many px is no click. */
const CLICK_PX = 5;
const BRUSH_PX = 26;
const SMALLEST_DISK = 0.15,
  LARGEST_DISK = 3,
  USUAL_DISK = 0.5;
const DOUBLE_CLICK_MS = 350;
/** Velocity for each unit of length that the pointer is away from the leaders, and at most. */
const PULL = 1.5,
  FASTEST = 6;
const ARROW = 0.4;
const FRESH_MS = 300;

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class Tools {
  tool = "pan";
  /** The circle that the scene draws around the pointer. */
  highlight = null;
  #pointers = new Map();
  #drag = null;
  #lastClick = 0;
  #steered = { at: -Infinity, velocity: [0, 0] };

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./view.js").View} view
   */
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#up(event));
    canvas.addEventListener("pointerleave", () => {
      this.highlight = null;
    });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  choose(tool) {
    this.tool = tool;
    this.highlight = null;
    this.canvas.dataset.tool = tool;
  }

  /** Turn the leaders by an arrow key; returns whether it was one. */
  arrow(key) {
    if (!(key in ARROWS)) return false;
    const now = this.view.leaderVelocity();
    if (!now) {
      this.view.notices.tell("Nobody leads: choose the arrow tool (2) and click an agent.");
      return true;
    }
    // Keys may come faster than frames that tell what the last one did.
    const [x, y] = performance.now() - this.#steered.at < FRESH_MS ? this.#steered.velocity : now;
    this.#steer(x + ARROW * ARROWS[key][0], y + ARROW * ARROWS[key][1]);
    return true;
  }

  /** Go on with what is held: leaders fly on while the hand rests. */
  tick() {
    const drag = this.#drag;
    if (this.tool === "lead" && drag && drag.travelled >= CLICK_PX) this.#pull(this.#place(drag.last));
  }

  zoom(factor) {
    this.view.cameras.forEach((camera, i) => {
      const { width, height } = this.view.viewports()[i];
      camera.zoom(factor, width / 2, height / 2, this.view.viewports()[i]);
    });
  }

  /** Which panel an event is over, and where in the world. */
  #place(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left,
      y = event.clientY - bounds.top;
    const views = this.view.viewports();
    const found = views.findIndex((v) => x >= v.x && x < v.x + v.width && y >= v.y && y < v.y + v.height);
    const panel = Math.max(found, 0),
      viewport = views[panel];
    const px = x - viewport.x,
      py = y - viewport.y;
    const camera = this.view.cameras[panel];
    return { panel, viewport, px, py, camera, at: camera.toWorld(px, py, viewport) };
  }

  #down(event) {
    if (!this.view.frame) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event);
    if (this.#pointers.size > 1) {
      this.#drag = null; // two fingers move and zoom, whatever the tool
      return;
    }
    const place = this.#place(event);
    this.#drag = { from: place, last: event, travelled: 0 };
    if (this.tool === "remove") this.#brush(place);
    if (this.tool === "obstacle") this.#drag.disk = this.#diskAt(place);
  }

  #move(event) {
    if (!this.view.frame) return;
    const place = this.#place(event);
    this.#point(place);
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    this.#pointers.set(event.pointerId, event);
    if (this.#pointers.size > 1) {
      this.#pinch(before, event);
      return;
    }
    const drag = this.#drag;
    if (!drag) return;
    const dx = event.clientX - drag.last.clientX,
      dy = event.clientY - drag.last.clientY;
    drag.last = event;
    drag.travelled += Math.hypot(dx, dy);
    if (this.tool === "pan") this.view.cameras.forEach((camera) => camera.pan(dx, dy));
    if (drag.travelled < CLICK_PX) return;
    if (this.tool === "remove") this.#brush(place);
    if (this.tool === "obstacle") this.#dragDisk(drag, place);
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    const drag = this.#drag;
    this.#drag = null;
    if (!drag || event.type === "pointercancel") return;
    const place = this.#place(event);
    if (this.tool === "lead" && drag.travelled < CLICK_PX) {
      this.view.ask({ do: "lead", at: place.at, panel: place.panel });
    }
    if (this.tool === "obstacle") this.#release(drag, place, event.timeStamp);
    if (event.pointerType !== "mouse") this.highlight = null;
  }

  #wheel(event) {
    event.preventDefault();
    if (!this.view.frame) return;
    const { px, py } = this.#place(event);
    const factor = Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015));
    this.view.cameras.forEach((camera, i) => camera.zoom(factor, px, py, this.view.viewports()[i]));
  }

  #pinch(before, now) {
    const [a, b] = [...this.#pointers.values()];
    const other = a.pointerId === now.pointerId ? b : a;
    const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
    const { px, py } = this.#place({
      clientX: (now.clientX + other.clientX) / 2,
      clientY: (now.clientY + other.clientY) / 2,
    });
    this.view.cameras.forEach((camera, i) => {
      camera.zoom(apart(now) / Math.max(apart(before), 1), px, py, this.view.viewports()[i]);
      camera.pan((now.clientX - before.clientX) / 2, (now.clientY - before.clientY) / 2);
    });
  }

  /** Show where the tool would act. */
  #point({ panel, at: [x, y], camera }) {
    const radius = { remove: BRUSH_PX / camera.scale, obstacle: USUAL_DISK, lead: 14 / camera.scale }[this.tool];
    const kind = { remove: "brush", obstacle: "obstacle", lead: "lead" }[this.tool];
    this.highlight = radius ? { panel, x, y, radius, kind } : null;
  }

  #brush({ at, panel, camera }) {
    this.view.ask({ do: "remove", at, panel, reach: BRUSH_PX / camera.scale });
  }

  /** The leaders are drawn towards the pointer, the faster the farther it is. */
  #pull({ at: [x, y], panel }) {
    const shown = this.view.frame.panels[panel];
    const leaders = [...shown.roles.keys()].filter((i) => shown.roles[i] === LEADER);
    if (!leaders.length) {
      this.view.notices.tell("Nobody leads: click an agent first.");
      return;
    }
    const mean = (offset) => leaders.reduce((sum, i) => sum + shown.positions[2 * i + offset], 0) / leaders.length;
    this.#steer(PULL * (x - shown.origin[0] - mean(0)), PULL * (y - shown.origin[1] - mean(1)));
  }

  #steer(x, y) {
    const size = Math.hypot(x, y),
      factor = size > FASTEST ? FASTEST / size : 1;
    this.#steered = { at: performance.now(), velocity: [factor * x, factor * y] };
    this.view.askLatest({ do: "steer", velocity: this.#steered.velocity });
  }

  /** The number of the disk under a place, or -1, and how it is held. */
  #diskAt({ panel, at: [x, y] }) {
    const { disks, origin } = this.view.frame.panels[panel];
    for (let i = disks.length / 3 - 1; i >= 0; i--) {
      const dx = x - origin[0] - disks[3 * i],
        dy = y - origin[1] - disks[3 * i + 1];
      if (Math.hypot(dx, dy) <= disks[3 * i + 2]) return { number: i, hold: [dx, dy] };
    }
    return { number: -1 };
  }

  #dragDisk(drag, { at: [x, y] }) {
    const { number, hold } = drag.disk;
    if (number >= 0) {
      this.view.moveDisk(number, [x - hold[0], y - hold[1]]);
      return;
    }
    const [cx, cy] = drag.from.at;
    this.highlight = {
      panel: drag.from.panel,
      x: cx,
      y: cy,
      radius: diskRadius(drag.from.at, [x, y]),
      kind: "obstacle",
    };
  }

  #release(drag, place, time) {
    const { number } = drag.disk;
    const click = drag.travelled < CLICK_PX,
      double = click && time - this.#lastClick < DOUBLE_CLICK_MS;
    this.#lastClick = click ? time : 0;
    if (number >= 0) {
      if (double) this.view.liftDisk(number);
      return;
    }
    const [x, y] = drag.from.at;
    this.view.dropDisk({ x, y, radius: click ? USUAL_DISK : diskRadius([x, y], place.at) });
  }
}

function diskRadius([x, y], [u, v]) {
  return Math.min(Math.max(Math.hypot(u - x, v - y), SMALLEST_DISK), LARGEST_DISK);
}

/** Whether keys belong to the element that has the focus. */
export function typing(element) {
  return (element instanceof HTMLInputElement && element.type !== "checkbox") || element instanceof HTMLSelectElement;
}
