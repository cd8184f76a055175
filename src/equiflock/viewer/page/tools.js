/** What a hand does to the flock: mouse, pen, fingers and keys on the canvas. */

import { Aim } from "./aim.js";
import { LEADER } from "./frames.js";

/** A drag of so many px is no click. */
const CLICK_PX = 5;
/** Two clicks farther apart are no double click. */
const DOUBLE_CLICK_PX = { mouse: 12, pen: 20, touch: 36 };
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
  #aim;
  /** Those that press. */
  #pointers = new Map();
  /** Where the pointer was seen last, pressing or not; null if it is elsewhere. */
  #hover = null;
  #drag = null;
  #brushed = [];
  /** The last click, and what was under it. */
  #clicked = { time: -Infinity };
  #steered = { at: -Infinity, velocity: [0, 0] };

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./view.js").View} view
   */
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.#aim = new Aim(canvas, view);
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#up(event));
    canvas.addEventListener("lostpointercapture", (event) => this.#lift(event));
    canvas.addEventListener("pointerleave", () => {
      this.#hover = null;
    });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  choose(tool) {
    this.tool = tool;
    this.#hover = null;
    this.letGo();
    this.canvas.dataset.tool = tool;
  }

  /** Forget what is held, as when another flight begins. */
  letGo() {
    this.#drag = null;
    this.#brushed = [];
    this.#clicked = { time: -Infinity };
  }

  /** The circle that shows where the tool would act, as the scene takes it: found anew for each picture. */
  get highlight() {
    if (!this.#hover || !this.view.frame || this.tool === "pan") return null;
    const drag = this.#drag;
    const { panel, px, py, camera, at } = this.#aim.place(this.#hover, drag?.from.panel);
    if (this.tool === "obstacle") {
      const { number, hold } = drag?.disk ?? this.#aim.diskAt({ panel, at });
      if (number >= 0) {
        const { x, y, radius } = this.#aim.disk(panel, number);
        const moved = drag && drag.travelled >= CLICK_PX;
        return { panel, kind: "lead", radius, ...(moved ? { x: at[0] - hold[0], y: at[1] - hold[1] } : { x, y }) };
      }
      if (drag && drag.travelled >= CLICK_PX) {
        const [x, y] = drag.from.at;
        return { panel, kind: "obstacle", x, y, radius: diskRadius([x, y], at) };
      }
    }
    const pixels = { remove: BRUSH_PX, obstacle: SMALLEST_DISK * camera.scale, lead: LEAD_PX }[this.tool];
    return { panel, kind: { remove: "brush", obstacle: "obstacle", lead: "lead" }[this.tool], px, py, pixels };
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
    if (pulling && !this.view.link.waitsFor("steer")) this.#pull(this.#aim.place(drag.last, drag.from.panel));
    if (this.#brushed.length && !this.view.link.waitsFor("remove")) this.#sweep();
  }

  /** Remove what was brushed over since the last time. */
  #sweep() {
    const [{ panel, camera }] = this.#brushed;
    const places = this.#brushed.filter((place) => place.panel === panel).slice(0, MOST_PLACES);
    this.#brushed = this.#brushed.filter((place) => !places.includes(place));
    this.view.actions.remove(
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

  #down(event) {
    if (!this.view.screen.shown.frame || !this.view.frame || event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event);
    this.view.screen.held = true;
    this.#hover = event;
    if (this.#pointers.size > 1) {
      this.#drag = null; // two fingers move and zoom, whatever the tool
      return;
    }
    const from = this.#aim.place(event);
    this.#drag = { from, last: event, travelled: 0 };
    if (this.tool === "remove") this.#brushed.push(from);
    // What is meant is what is seen now: the flock will have flown on when the hand lets go.
    if (this.tool === "obstacle") this.#drag.disk = this.#aim.diskAt(from);
    if (this.tool === "lead") this.#drag.agent = this.#aim.agentAt(from, event.pointerType === "touch" ? 2 * LEAD_PX : LEAD_PX);
  }

  #move(event) {
    if (!this.view.frame) return;
    this.#hover = event;
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
    if (this.tool === "remove") this.#brushed.push(this.#aim.place(event));
    if (this.tool === "obstacle" && drag.disk.number >= 0) this.#moveDisk(drag, this.#aim.place(event, drag.from.panel));
  }

  #up(event) {
    const drag = this.#drag;
    this.#lift(event);
    if (event.pointerType !== "mouse") this.#hover = null;
    this.#drag = null;
    if (!drag || !this.view.frame || event.type === "pointercancel") return;
    if (drag.travelled < CLICK_PX) this.#click(drag, event);
    else if (this.tool === "obstacle" && drag.disk.number < 0) {
      const [x, y] = drag.from.at;
      this.view.actions.dropDisk({ x, y, radius: diskRadius([x, y], this.#aim.place(event, drag.from.panel).at) });
    }
  }

  /** A pointer presses no longer; when none does, nothing is held, and cameras are free again. */
  #lift(event) {
    this.#pointers.delete(event.pointerId);
    this.view.screen.held = this.#pointers.size > 0;
    if (!this.view.screen.held) this.#drag = null;
  }

  /** The second of two quick clicks means what the first one met: by then something else may fly there. */
  #click(drag, { timeStamp: time, clientX: x, clientY: y, pointerType }) {
    const last = this.#clicked;
    const near = Math.hypot(x - last.x, y - last.y) < (DOUBLE_CLICK_PX[pointerType] ?? DOUBLE_CLICK_PX.touch);
    const double = time - last.time < DOUBLE_CLICK_MS && near;
    const { disk, agent } = double ? last : drag;
    this.#clicked = { time, x, y, disk, agent };
    if (this.tool === "lead") {
      if (agent >= 0) this.view.actions.appoint(agent);
      else this.view.notices.tell("no agent is there: click on one", { bad: true });
    }
    if (this.tool !== "obstacle") return;
    if (disk.number < 0) this.view.notices.tell("Drag to draw an obstacle.");
    else if (double) {
      this.view.actions.liftDisk(disk.number);
      this.#clicked = { time: -Infinity }; // a third click means another one
    }
  }

  #wheel(event) {
    event.preventDefault();
    if (!this.view.frame) return;
    const { px, py } = this.#aim.place(event);
    const factor = Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015));
    this.view.screen.cameras.forEach((camera, i) => camera.zoom(factor, px, py, this.view.screen.viewports[i]));
  }

  #pinch(before, now) {
    const [a, b] = [...this.#pointers.values()];
    const other = a.pointerId === now.pointerId ? b : a;
    const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
    const { px, py } = this.#aim.place({
      clientX: (now.clientX + other.clientX) / 2,
      clientY: (now.clientY + other.clientY) / 2,
    });
    this.view.screen.cameras.forEach((camera, i) => {
      camera.zoom(apart(now) / Math.max(apart(before), 1), px, py, this.view.screen.viewports[i]);
      camera.pan((now.clientX - before.clientX) / 2, (now.clientY - before.clientY) / 2);
    });
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
    this.view.actions.steer(this.#steered.velocity);
  }

  #moveDisk({ disk: { number, hold } }, { at: [x, y] }) {
    this.view.actions.moveDisk(number, x - hold[0], y - hold[1]);
  }
}

function diskRadius([x, y], [u, v]) {
  return Math.min(Math.max(Math.hypot(u - x, v - y), SMALLEST_DISK), LARGEST_DISK);
}

/** Whether keys belong to the element that has the focus. */
export function typing(element) {
  return (element instanceof HTMLInputElement && element.type !== "checkbox") || element instanceof HTMLSelectElement;
}
