/** What a hand does to the flock: mouse, pen, fingers and keys on the canvas. */

import { LEADER } from "./frames.js";

/** A drag of so many px is no click. */
const CLICK_PX = 5;
const BRUSH_PX = 26;
const LEAD_PX = 18;
/** In one request to remove agents. */
const MOST_PLACES = 100;
const SMALLEST_DISK = 0.15,
  LARGEST_DISK = 3;
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
  #brushed = [];
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
    this.highlight = this.#drag = null;
    this.#brushed = [];
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

  /** Go on with what is held: leaders follow a hand that rests, too. */
  tick() {
    const drag = this.#drag;
    const pulling = this.tool === "lead" && drag && drag.travelled >= CLICK_PX;
    if (pulling && !this.view.link.waitsFor("steer")) this.#pull(this.#place(drag.last));
    if (this.#brushed.length && !this.view.link.waitsFor("remove")) this.#sweep();
  }

  /** Remove what was brushed over since the last time. */
  #sweep() {
    const [{ panel, camera }] = this.#brushed;
    const places = this.#brushed.filter((place) => place.panel === panel).slice(0, MOST_PLACES);
    this.#brushed = this.#brushed.filter((place) => !places.includes(place));
    this.view.remove(
      places.map(({ at }) => at),
      panel,
      BRUSH_PX / camera.scale,
    );
  }

  zoom(factor) {
    this.view.screen.cameras.forEach((camera, i) => {
      const { width, height } = this.view.screen.viewports[i];
      camera.zoom(factor, width / 2, height / 2, this.view.screen.viewports[i]);
    });
  }

  /** Which panel an event is over, and where in the world. */
  #place(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const views = this.view.screen.viewports;
    const found = views.findIndex((v) => x >= v.x && x < v.x + v.width && y >= v.y && y < v.y + v.height);
    const panel = Math.max(found, 0);
    const viewport = views[panel];
    const px = x - viewport.x;
    const py = y - viewport.y;
    const camera = this.view.screen.cameras[panel];
    return { panel, viewport, px, py, camera, at: camera.toWorld(px, py, viewport) };
  }

  #down(event) {
    if (!this.view.frame || event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event);
    if (this.#pointers.size > 1) {
      this.#drag = null; // two fingers move and zoom, whatever the tool
      return;
    }
    const place = this.#place(event);
    this.#drag = { from: place, last: event, travelled: 0 };
    if (this.tool === "remove") this.#brushed.push(place);
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
    const dx = event.clientX - drag.last.clientX;
    const dy = event.clientY - drag.last.clientY;
    drag.last = event;
    drag.travelled += Math.hypot(dx, dy);
    if (this.tool === "pan") this.view.screen.cameras.forEach((camera) => camera.pan(dx, dy));
    if (drag.travelled < CLICK_PX) return;
    if (this.tool === "remove") this.#brushed.push(place);
    if (this.tool === "obstacle") this.#dragDisk(drag, place);
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    const drag = this.#drag;
    this.#drag = null;
    if (!drag || !this.view.frame || event.type === "pointercancel") return;
    const place = this.#place(event);
    if (this.tool === "lead" && drag.travelled < CLICK_PX) {
      const reach = event.pointerType === "touch" ? 2 * LEAD_PX : LEAD_PX;
      this.view.lead(place.at, place.panel, reach / place.camera.scale);
    }
    if (this.tool === "obstacle") this.#release(drag, place, event.timeStamp);
    if (event.pointerType !== "mouse") this.highlight = null;
  }

  #wheel(event) {
    event.preventDefault();
    if (!this.view.frame) return;
    const { px, py } = this.#place(event);
    const factor = Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015));
    this.view.screen.cameras.forEach((camera, i) => camera.zoom(factor, px, py, this.view.screen.viewports[i]));
  }

  #pinch(before, now) {
    const [a, b] = [...this.#pointers.values()];
    const other = a.pointerId === now.pointerId ? b : a;
    const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
    const { px, py } = this.#place({
      clientX: (now.clientX + other.clientX) / 2,
      clientY: (now.clientY + other.clientY) / 2,
    });
    this.view.screen.cameras.forEach((camera, i) => {
      camera.zoom(apart(now) / Math.max(apart(before), 1), px, py, this.view.screen.viewports[i]);
      camera.pan((now.clientX - before.clientX) / 2, (now.clientY - before.clientY) / 2);
    });
  }

  /** Show where the tool would act. */
  #point(place) {
    const { panel, at, camera } = place;
    const circle = ([x, y], radius, kind) => ({ panel, x, y, radius, kind });
    const held = this.#drag?.disk ?? (this.tool === "obstacle" ? this.#diskAt(place) : null);
    if (held?.number >= 0) {
      const { disks, origin } = this.view.frame.panels[panel];
      const [x, y, radius] = disks.subarray(3 * held.number);
      this.highlight = circle([origin[0] + x, origin[1] + y], radius, "lead");
    } else if (this.tool === "pan") this.highlight = null;
    else {
      const radius = { remove: BRUSH_PX / camera.scale, obstacle: SMALLEST_DISK, lead: LEAD_PX / camera.scale }[
        this.tool
      ];
      this.highlight = circle(at, radius, { remove: "brush", obstacle: "obstacle", lead: "lead" }[this.tool]);
    }
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
    const factor = Math.min(FASTEST / Math.max(Math.hypot(x, y), 1e-9), 1);
    this.#steered = { at: performance.now(), velocity: [factor * x, factor * y] };
    this.view.steer(this.#steered.velocity);
  }

  /** The number of the disk under a place, or -1, and how it is held. */
  #diskAt({ panel, at: [x, y] }) {
    const { disks, origin } = this.view.frame.panels[panel];
    for (let i = disks.length / 3 - 1; i >= 0; i--) {
      const dx = x - origin[0] - disks[3 * i];
      const dy = y - origin[1] - disks[3 * i + 1];
      if (Math.hypot(dx, dy) <= disks[3 * i + 2]) return { number: i, hold: [dx, dy] };
    }
    return { number: -1 };
  }

  #dragDisk(drag, { at: [x, y] }) {
    const { number, hold } = drag.disk;
    if (number >= 0) {
      this.view.moveDisk(number, x - hold[0], y - hold[1]);
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
    const click = drag.travelled < CLICK_PX;
    const double = click && time - this.#lastClick < DOUBLE_CLICK_MS;
    this.#lastClick = click ? time : 0;
    if (number >= 0) {
      if (double) this.view.liftDisk(number);
    } else if (click) {
      this.view.notices.tell("Drag to draw an obstacle.");
    } else {
      const [x, y] = drag.from.at;
      this.view.dropDisk({ x, y, radius: diskRadius([x, y], place.at) });
    }
  }
}

function diskRadius([x, y], [u, v]) {
  return Math.min(Math.max(Math.hypot(u - x, v - y), SMALLEST_DISK), LARGEST_DISK);
}

/** Whether keys belong to the element that has the focus. */
export function typing(element) {
  return (element instanceof HTMLInputElement && element.type !== "checkbox") || element instanceof HTMLSelectElement;
}
