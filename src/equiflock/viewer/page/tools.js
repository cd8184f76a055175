/** Tools that act on the flock by mouse, pen, touch and arrow keys. */

import { findNearestAgent, LEADER } from "./player/frames.js";
import { Picker } from "./picking.js";

/** A pointer that moves this far drags; it does not click. */
const CLICK_PX = 5;
/** Maximum distance between the clicks of a double click. */
const DOUBLE_CLICK_PX = { mouse: 12, pen: 20, touch: 36 };
const BRUSH_PX = 26;
const PICK_PX = 18;
/** Maximum number of positions in one request to remove agents. */
const MAX_PLACES = 100;
const MIN_DISK_RADIUS = 0.15,
  MAX_DISK_RADIUS = 3;
const DOUBLE_CLICK_MS = 350;
/** Leaders fly towards the pointer with this velocity per distance, up to the maximum speed. */
const LEADER_GAIN = 1.5,
  MAX_LEADER_SPEED = 6;
const ARROW_SPEED_STEP = 0.4;
const STEER_MEMORY_MS = 300;
/** Id of notices about the use of a tool. */
const NOTICE = "tool";

const ARROW_DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** The tools "pan", "lead", "obstacle", "remove" and "inspect"; two fingers and the wheel pan and zoom with any of them. */
export class Tools {
  tool = "pan";
  #picker;
  /** Pressed pointers by id. */
  #pointers = new Map();
  /** Last pointer event over the canvas, pressed or not; null if the pointer is elsewhere. */
  #hover = null;
  #drag = null;
  #brushPlaces = [];
  /** The last click, and the disk or agent under it. */
  #lastClick = { time: -Infinity };
  #lastSteer = { at: -Infinity, velocity: [0, 0] };

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./view.js").View} view
   */
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.#picker = new Picker(canvas, view);
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#up(event));
    canvas.addEventListener("lostpointercapture", (event) => this.#releasePointer(event));
    canvas.addEventListener("pointerleave", () => {
      this.#hover = null;
    });
    canvas.addEventListener("keydown", ({ key }) => {
      if (key === "Enter" && this.tool === "inspect" && this.view.frame) this.#inspectMiddle();
    });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  /**
   * Select "pan", "lead", "obstacle", "remove" or "inspect", and end the current drag; notices about the last tool go.
   */
  selectTool(tool) {
    this.view.notices.dismiss(NOTICE);
    this.tool = tool;
    this.#hover = null;
    this.releaseDrag();
    this.canvas.dataset.tool = tool;
  }

  /** End the drag without effect, and forget brushed places and the last click, for another tool or flight. */
  releaseDrag() {
    this.#drag = null;
    this.#brushPlaces = [];
    this.#lastClick = { time: -Infinity };
  }

  /**
   * Circle that shows where the tool would act, as `highlight` of Scene.draw; null for panning or without a pointer.
   */
  get highlight() {
    if (!this.#hover || !this.view.frame || this.tool === "pan") return null;
    const drag = this.#drag;
    const { panel, px, py, camera, at } = this.#picker.locate(this.#hover, drag?.from.panel);
    if (this.tool === "obstacle") {
      const { index, gripOffset } = drag?.disk ?? this.#picker.pickDisk({ panel, at });
      if (index >= 0) {
        const { x, y, radius } = this.#picker.getDisk(panel, index);
        const moved = drag && drag.travelled >= CLICK_PX;
        const centre = moved ? { x: at[0] - gripOffset[0], y: at[1] - gripOffset[1] } : { x, y };
        return { panel, kind: "lead", radius, ...centre };
      }
      if (drag && drag.travelled >= CLICK_PX) {
        const [x, y] = drag.from.at;
        return { panel, kind: "obstacle", x, y, radius: computeDiskRadius([x, y], at) };
      }
    }
    const { kind, pixels } = {
      remove: { kind: "brush", pixels: BRUSH_PX },
      obstacle: { kind: "obstacle", pixels: MIN_DISK_RADIUS * camera.scale },
      lead: { kind: "lead", pixels: PICK_PX },
      inspect: { kind: "link", pixels: PICK_PX },
    }[this.tool];
    return { panel, kind, px, py, pixels };
  }

  /**
   * Change the leaders' velocity by ARROW_SPEED_STEP in the direction of an arrow key; without leaders, show a notice.
   * @returns {boolean} whether the key is an arrow
   */
  steerByKey(key) {
    if (!(key in ARROW_DIRECTIONS)) return false;
    const now = this.view.computeLeaderVelocity();
    if (!now) {
      this.view.notices.show("No leaders: select the leader tool (2) and click an agent.", { id: NOTICE });
      return true;
    }
    // Keys may arrive faster than the frames that show their effect.
    const [x, y] = performance.now() - this.#lastSteer.at < STEER_MEMORY_MS ? this.#lastSteer.velocity : now;
    this.#steer(x + ARROW_SPEED_STEP * ARROW_DIRECTIONS[key][0], y + ARROW_SPEED_STEP * ARROW_DIRECTIONS[key][1]);
    return true;
  }

  /**
   * Continue the drag, once per picture: steer leaders to the pointer, even if it rests, and remove brushed agents.
   * Each waits until the server has answered the last such request.
   */
  tick() {
    const drag = this.#drag;
    const pulling = this.tool === "lead" && drag && drag.travelled >= CLICK_PX;
    if (pulling && !this.view.connection.isWaitingFor("steer"))
      this.#pullLeaders(this.#picker.locate(drag.last, drag.from.panel));
    if (this.#brushPlaces.length && !this.view.connection.isWaitingFor("remove_agents")) this.#removeBrushed();
  }

  /** Request removal at the oldest brushed places: up to MAX_PLACES, of one panel; others wait for the next picture. */
  #removeBrushed() {
    const [{ panel, camera }] = this.#brushPlaces;
    const places = this.#brushPlaces.filter((place) => place.panel === panel).slice(0, MAX_PLACES);
    this.#brushPlaces = this.#brushPlaces.filter((place) => !places.includes(place));
    this.view.actions.removeAgents(
      places.map(({ at }) => at),
      panel,
      BRUSH_PX / camera.scale,
    );
  }

  /** Zoom all panels about their centres. */
  zoom(factor) {
    this.view.screen.cameras.forEach((camera, i) => {
      const { width, height } = this.view.screen.viewports[i];
      camera.zoom(factor, width / 2, height / 2, this.view.screen.viewports[i]);
    });
  }

  /** Inspect the agent nearest to the middle of the first panel. */
  #inspectMiddle() {
    const [camera] = this.view.screen.cameras;
    const { index } = findNearestAgent(this.view.frame.panels[0], [camera.x, camera.y], 0);
    this.view.inspector.inspect(index);
  }

  /** Start a drag with the primary button, and pick its target; a second pointer ends the drag. */
  #down(event) {
    if (!this.view.screen.picture.frame || !this.view.frame || event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event);
    this.view.screen.isHeld = true;
    this.#hover = event;
    if (this.#pointers.size > 1) {
      this.#drag = null; // two fingers pan and zoom with any tool
      return;
    }
    const from = this.#picker.locate(event);
    this.#drag = { from, last: event, travelled: 0 };
    if (this.tool === "remove") this.#brushPlaces.push(from);
    // The target is what is under the pointer now: the flock will have moved on at release.
    if (this.tool === "obstacle") this.#drag.disk = this.#picker.pickDisk(from);
    const reach = event.pointerType === "touch" ? 2 * PICK_PX : PICK_PX;
    if (this.tool === "lead" || this.tool === "inspect") this.#drag.agent = this.#picker.pickAgent(from, reach);
  }

  /** Continue a drag or pinch. The tools other than pan act from CLICK_PX on. */
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
    const pans = this.tool === "pan" || (this.tool === "inspect" && drag.travelled >= CLICK_PX);
    if (pans) this.view.screen.cameras.forEach((camera) => camera.pan(dx, dy));
    if (drag.travelled < CLICK_PX) return;
    if (this.tool === "remove") this.#brushPlaces.push(this.#picker.locate(event));
    if (this.tool === "obstacle" && drag.disk.index >= 0)
      this.#moveDisk(drag, this.#picker.locate(event, drag.from.panel));
  }

  /** End a drag: a click if it was shorter than CLICK_PX, or a new obstacle. A cancelled pointer has no effect. */
  #up(event) {
    const drag = this.#drag;
    this.#releasePointer(event);
    if (event.pointerType !== "mouse") this.#hover = null;
    this.#drag = null;
    if (!drag || !this.view.frame || event.type === "pointercancel") return;
    if (drag.travelled < CLICK_PX) this.#click(drag, event);
    else if (this.tool === "obstacle" && drag.disk.index < 0) {
      const [x, y] = drag.from.at;
      const { at } = this.#picker.locate(event, drag.from.panel);
      this.view.actions.addDisk({ x, y, radius: computeDiskRadius([x, y], at) });
    }
  }

  /** Release a pointer; after the last one the drag ends and the cameras move again. */
  #releasePointer(event) {
    this.#pointers.delete(event.pointerId);
    this.view.screen.isHeld = this.#pointers.size > 0;
    if (!this.view.screen.isHeld) this.#drag = null;
  }

  /**
   * Handle a click: toggle a leader, inspect an agent or, with a double click, remove an obstacle. The second click of a double click
   * acts on the target of the first, which may have moved since.
   */
  #click(drag, { timeStamp: time, clientX: x, clientY: y, pointerType }) {
    const last = this.#lastClick;
    const near = Math.hypot(x - last.x, y - last.y) < (DOUBLE_CLICK_PX[pointerType] ?? DOUBLE_CLICK_PX.touch);
    const double = time - last.time < DOUBLE_CLICK_MS && near;
    const { disk, agent } = double ? last : drag;
    this.#lastClick = { time, x, y, disk, agent };
    if (this.tool === "lead") {
      this.view.notices.dismiss(NOTICE);
      if (agent >= 0) this.view.actions.toggleLeader(agent);
      else this.view.notices.show("No agent here: click on one.", { id: NOTICE, isError: true });
    }
    if (this.tool === "inspect") this.view.inspector.inspect(agent);
    if (this.tool !== "obstacle") return;
    if (disk.index < 0) this.view.notices.show("Drag to draw an obstacle.", { id: NOTICE });
    else if (double) {
      this.view.actions.removeDisk(disk.index);
      this.#lastClick = { time: -Infinity }; // a third click starts a new double click
    }
  }

  /** Zoom all panels about the place that the pointer has in its panel. */
  #wheel(event) {
    event.preventDefault();
    if (!this.view.frame) return;
    const { px, py } = this.#picker.locate(event);
    const factor = Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015));
    this.view.screen.cameras.forEach((camera, i) => camera.zoom(factor, px, py, this.view.screen.viewports[i]));
  }

  /** Zoom and pan all panels by the motion of one of two fingers, about the point between them. */
  #pinch(before, now) {
    const [a, b] = [...this.#pointers.values()];
    const other = a.pointerId === now.pointerId ? b : a;
    const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
    const { px, py } = this.#picker.locate({
      clientX: (now.clientX + other.clientX) / 2,
      clientY: (now.clientY + other.clientY) / 2,
    });
    this.view.screen.cameras.forEach((camera, i) => {
      camera.zoom(apart(now) / Math.max(apart(before), 1), px, py, this.view.screen.viewports[i]);
      camera.pan((now.clientX - before.clientX) / 2, (now.clientY - before.clientY) / 2);
    });
  }

  /**
   * Steer all leaders towards the pointer, by its distance from their mean position; without leaders, show a notice.
   */
  #pullLeaders({ at: [x, y], panel }) {
    const { roles, positions, origin } = this.view.frame.panels[panel];
    const leaders = [...roles.keys()].filter((i) => roles[i] === LEADER);
    if (!leaders.length) {
      this.view.notices.show("No leaders: click an agent first.", { id: NOTICE });
      return;
    }
    const mean = (offset) => leaders.reduce((sum, i) => sum + positions[2 * i + offset], 0) / leaders.length;
    this.#steer(LEADER_GAIN * (x - origin[0] - mean(0)), LEADER_GAIN * (y - origin[1] - mean(1)));
  }

  /** Request a velocity of the leaders, limited to MAX_LEADER_SPEED. */
  #steer(x, y) {
    const factor = Math.min(MAX_LEADER_SPEED / Math.max(Math.hypot(x, y), 1e-9), 1);
    this.#lastSteer = { at: performance.now(), velocity: [factor * x, factor * y] };
    this.view.actions.steer(this.#lastSteer.velocity);
  }

  /** Move a dragged obstacle so that the point at which it was gripped is under the pointer. */
  #moveDisk({ disk: { index, gripOffset } }, { at: [x, y] }) {
    this.view.actions.moveDisk(index, x - gripOffset[0], y - gripOffset[1]);
  }
}

/** Return the radius of a disk about (x, y) through (u, v), from MIN_DISK_RADIUS to MAX_DISK_RADIUS. */
function computeDiskRadius([x, y], [u, v]) {
  return Math.min(Math.max(Math.hypot(u - x, v - y), MIN_DISK_RADIUS), MAX_DISK_RADIUS);
}

/** Return whether an element takes keyboard input itself: a menu, or an input other than a checkbox. */
export function acceptsTyping(element) {
  return (element instanceof HTMLInputElement && element.type !== "checkbox") || element instanceof HTMLSelectElement;
}
