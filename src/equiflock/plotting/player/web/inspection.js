/** Draws one agent's observations over the scene: its radius, its neighbours by hop, and vectors from the agent. */

import { make } from "./dom.js";
import { LEADER, listGroups, OBSTACLE, placeAgent } from "./frames.js";
import { PALETTES } from "./palettes.js";

const MIN_LONGEST_PX = 40; // bounds of the length of the longest vector, in css pixels; between them it is R
const MAX_LONGEST_PX = 84;
const MIN_VECTOR_PX = 3; // shorter vectors are not drawn
const MANY_LINKS = 30; // more lines of a hop are thinner
const HEAD_PX = 7; // length of the head of an arrow
const MIN_DART_PX = 7;
const MAX_DART_PX = 26;

/** Return width and opacity of the lines of a hop, 1, 2, ..: further hops are thinner and fainter. */
export function getHopStyle(hop) {
  return { width: Math.max(2.6 - 0.6 * hop, 0.8), opacity: Math.max(1.15 - 0.27 * hop, 0.25) };
}

/** A transparent canvas over the scene; all agents but the inspected one and its neighbours look dim below it. */
export class InspectionLayer {
  #canvas = make("canvas", { className: "inspection-layer", ariaHidden: "true", hidden: true });
  #scene;
  #context;

  /** @param {HTMLCanvasElement} scene canvas of the scene; this one is its next sibling */
  constructor(scene) {
    this.#scene = scene;
    scene.after(this.#canvas);
    this.#context = this.#canvas.getContext("2d");
  }

  /**
   * Draw an inspected agent, or hide the layer if there is none or the frame has other agents.
   * @param {{panels: object[]}} frame
   * @param {number} ahead seconds since the frame's time
   * @param {import("./camera.js").Camera[]} cameras one per panel
   * @param {object[]} viewports rectangles of the panels in css pixels
   * @param {{commRadius: number, theme: string}} look R, and the theme, "dark" or "light"
   * @param {?{agent: number, agents: number, panels: ?object[]}} inspection index of the agent, number of agents, and
   *   for each panel null or {hops, lost, vectors}: links [receiver, sender] of each hop; senders of lost messages;
   *   {vector: [x, y], length (0 to 1), colour, hop} of each vector, hop 0 for the acceleration
   */
  draw(frame, ahead, cameras, viewports, look, inspection) {
    const shown = inspection !== null && frame.panels.some((panel) => panel.agents > inspection.agent);
    this.#canvas.hidden = !shown;
    if (!shown) return;
    const ratio = Math.min(window.devicePixelRatio, 2);
    const [width, height] = [this.#scene.clientWidth, this.#scene.clientHeight].map((css) => Math.round(css * ratio));
    if (this.#canvas.width !== width || this.#canvas.height !== height) Object.assign(this.#canvas, { width, height });
    const context = this.#context;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    frame.panels.forEach((panel, i) => {
      const content = inspection.panels[i];
      if (!content || inspection.agent >= panel.agents) return;
      const { x, y, width: w, height: h } = viewports[i];
      context.save();
      context.beginPath();
      context.rect(x, y, w, h);
      context.clip();
      context.translate(x, y);
      const time = panel.hasEnded ? 0 : ahead;
      new PanelDrawing(context, panel, time, cameras[i], viewports[i], look).draw(inspection.agent, content);
      context.restore();
    });
  }
}

/** Draws the inspected agent of one panel. */
class PanelDrawing {
  #context;
  #panel;
  #ahead;
  #camera;
  #viewport;
  #commRadius;
  #palette;
  #groups;
  #size;

  constructor(context, panel, ahead, camera, viewport, { commRadius, theme }) {
    this.#context = context;
    this.#panel = panel;
    this.#ahead = ahead;
    this.#camera = camera;
    this.#viewport = viewport;
    this.#commRadius = commRadius;
    this.#palette = PALETTES[theme];
    this.#groups = listGroups(panel);
    this.#size = Math.min(Math.max(1.6 * Math.sqrt(camera.scale), MIN_DART_PX), MAX_DART_PX);
  }

  /** Draw the layer of an agent, back to front. */
  draw(agent, { hops, lost, vectors }) {
    const context = this.#context;
    const palette = this.#palette;
    const centre = this.#place(agent);
    context.globalAlpha = 0.72;
    context.fillStyle = palette.background;
    context.fillRect(0, 0, this.#viewport.width, this.#viewport.height);
    this.#drawRadius(centre);
    // The last hop is below the others.
    hops.forEach((_, k) => this.#drawLinks(hops[hops.length - 1 - k], palette.link, getHopStyle(hops.length - k)));
    this.#drawLinks(
      lost.map((sender) => [agent, sender]),
      palette.lost.slice(0, 7),
      { width: 1.4, opacity: 0.9 },
      [5, 4],
    );
    const neighbours = new Set(hops.flatMap((links) => links.map(([, sender]) => sender)));
    for (const neighbour of [...neighbours, ...lost]) this.#drawAgent(neighbour);
    const radius = 0.75 * this.#size + 4;
    for (const vector of vectors) this.#drawVector(centre, radius, vector);
    this.#drawRing(centre, radius, palette.ink, 1.5);
    this.#drawAgent(agent);
  }

  /** Return css pixels, from the panel's top left, of an agent. */
  #place(agent) {
    return this.#camera.toScreen(...placeAgent(this.#panel, agent, this.#ahead), this.#viewport);
  }

  #drawRadius([x, y]) {
    const context = this.#context;
    context.beginPath();
    context.arc(x, y, this.#commRadius * this.#camera.scale, 0, 2 * Math.PI);
    context.globalAlpha = 0.06;
    context.fillStyle = this.#palette.link;
    context.fill();
    context.globalAlpha = 0.7;
    context.setLineDash([3, 5]);
    context.lineWidth = 1.25;
    context.strokeStyle = this.#palette.link;
    context.stroke();
    context.setLineDash([]);
  }

  /** Draw lines from receivers to senders, thinner ones if they are many. */
  #drawLinks(links, colour, style, dash = []) {
    const context = this.#context;
    const width = style.width * Math.min(1, Math.max(Math.sqrt(MANY_LINKS / Math.max(links.length, 1)), 0.4));
    context.beginPath();
    for (const [receiver, sender] of links) {
      context.moveTo(...this.#place(receiver));
      context.lineTo(...this.#place(sender));
    }
    Object.assign(context, { globalAlpha: style.opacity, lineWidth: width, strokeStyle: colour });
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
  }

  #drawRing([x, y], radius, colour, width) {
    const context = this.#context;
    Object.assign(context, { globalAlpha: 1, lineWidth: width, strokeStyle: colour });
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  }

  /** Draw an agent as the scene does: a dart in its colour, a disc if it is an obstacle agent. */
  #drawAgent(i) {
    const context = this.#context;
    const [x, y] = this.#place(i);
    const { roles, velocities } = this.#panel;
    const isLeader = roles[i] === LEADER;
    const size = isLeader ? 1.5 * this.#size : this.#size;
    context.globalAlpha = 1;
    context.beginPath();
    if (roles[i] === OBSTACLE) {
      context.fillStyle = this.#palette.obstacle;
      context.arc(x, y, 2 + size / 8, 0, 2 * Math.PI);
      context.fill();
      return;
    }
    // Screen coordinates have y down.
    const angle = Math.atan2(-velocities[2 * i + 1], velocities[2 * i]);
    const [c, s] = [size * Math.cos(angle), size * Math.sin(angle)];
    const corners = [
      [0.56, 0],
      [-0.44, 0.32],
      [-0.24, 0],
      [-0.44, -0.32],
    ];
    for (const [along, across] of corners) context.lineTo(x + along * c - across * s, y + along * s + across * c);
    context.closePath();
    context.fillStyle = this.#chooseColour(i);
    context.fill();
    if (isLeader) this.#drawRing([x, y], this.#size + 4.6, this.#palette.ink, 1.25);
  }

  /** Return the colour of an agent in the scene: grey if it has failed, else that of its group or heading. */
  #chooseColour(i) {
    const { conditions, groups, velocities, roles } = this.#panel;
    const palette = this.#palette;
    if (conditions[i]) return palette.failed;
    if (this.#groups.length > 1 && roles[i] !== OBSTACLE)
      return palette.groups[this.#groups.indexOf(groups[i]) % palette.groups.length];
    const [vx, vy] = [velocities[2 * i], velocities[2 * i + 1]];
    const vividness = Math.min(Math.hypot(vx, vy) / 0.15, 1);
    return `oklch(${palette.lightness} ${palette.chroma * vividness} ${(Math.atan2(vy, vx) * 180) / Math.PI}deg)`;
  }

  /** Draw an arrow from a ring around a place, with an outline that sets it off from lines below. */
  #drawVector(centre, radius, { vector, length, colour, hop }) {
    const norm = Math.hypot(...vector);
    const radiusPx = this.#commRadius * this.#camera.scale;
    const pixels = length * Math.min(Math.max(radiusPx, MIN_LONGEST_PX), MAX_LONGEST_PX);
    if (!(norm > 0) || pixels < MIN_VECTOR_PX) return;
    const [ux, uy] = [vector[0] / norm, -vector[1] / norm];
    const [x, y] = [centre[0] + radius * ux, centre[1] + radius * uy];
    const head = Math.min(HEAD_PX, 0.7 * pixels);
    const [tipX, tipY] = [x + ux * pixels, y + uy * pixels];
    const [neckX, neckY] = [tipX - ux * head, tipY - uy * head];
    const width = hop === 0 ? 3 : getHopStyle(hop).width + 0.4;
    const context = this.#context;
    for (const [extra, paint] of [
      [2.5, this.#palette.background],
      [0, colour],
    ]) {
      Object.assign(context, { globalAlpha: 1, strokeStyle: paint, fillStyle: paint, lineWidth: width + extra });
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(neckX, neckY);
      context.stroke();
      context.beginPath();
      context.moveTo(tipX, tipY);
      context.lineTo(neckX - 0.5 * uy * head, neckY + 0.5 * ux * head);
      context.lineTo(neckX + 0.5 * uy * head, neckY - 0.5 * ux * head);
      context.closePath();
      context.lineWidth = extra;
      if (extra) context.stroke();
      context.fill();
    }
  }
}
