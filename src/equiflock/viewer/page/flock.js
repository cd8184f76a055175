/** Flocks on the graphics card. */

import { FAILURES, FOLLOWER, groupsOf, OBSTACLE } from "./frames.js";
import { FAILED, GROUPS, ROW } from "./shaders.js";

export const TRAIL = 1.44; // simulated seconds that a trail lasts
const TRAIL_WORK = 16000; // segments drawn, unless that leaves fewer than 4 an agent

/** What the GPU holds of one panel. A frame that gives way to a newer one stays behind as a slot of the trails. */
export class Flock {
  now = null; // {agents: texture, origin, time, count}
  past = []; // the same, oldest first
  kinds = []; // {start, count} of followers, leaders, obstacle agents and each way to have failed, in that order
  disks = []; // [x, y, radius] in world coordinates
  edges; // {buffer, count} of messages that are used
  lost; // and of those that did not arrive
  #gl;

  constructor(gl) {
    this.#gl = gl;
    [this.edges, this.lost] = [0, 1].map(() => ({ buffer: gl.createBuffer(), count: 0 }));
  }

  /** In how many pieces a trail is drawn: fewer of many agents, which are seen from further away. */
  get slots() {
    return Math.min(Math.max(Math.floor(TRAIL_WORK / this.now.count), 4), 24);
  }

  upload(panel, time) {
    const gl = this.#gl;
    const count = panel.roles.length;
    // Trails do not lead from one moment of a flight to another that was jumped to.
    const jumped = this.now && (time < this.now.time || time > this.now.time + TRAIL);
    if (jumped || this.now?.count !== count) this.forget();
    this.now = { agents: this.#spare() ?? this.#texture(), origin: panel.origin, time, count };
    gl.bindTexture(gl.TEXTURE_2D, this.now.agents);
    const texels = this.#pack(panel);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32F, ROW, texels.length / ROW / 4, 0, gl.RGBA, gl.FLOAT, texels);
    this.#uploadLines(this.edges, panel.edges, panel);
    this.#uploadLines(this.lost, panel.lost, panel);
    const [x, y] = panel.origin;
    this.disks = Array.from({ length: panel.disks.length / 3 }, (_, k) => {
      const [dx, dy, radius] = panel.disks.subarray(3 * k);
      return [x + dx, y + dy, radius];
    });
  }

  forget() {
    for (const slot of this.past) this.#gl.deleteTexture(slot.agents);
    this.#gl.deleteTexture(this.now?.agents ?? null);
    this.past = [];
    this.now = null;
  }

  /**
   * A line for each message, from its receiver to halfway to a sender that may hear it in turn, which has the other
   * half, and all the way to any other. The ends are given as two agents, between which they lie.
   */
  #uploadLines(lines, messages, { roles, conditions }) {
    const gl = this.#gl;
    const ends = new Uint32Array(2 * messages.length);
    for (let k = 0; k < messages.length; k += 2) {
      const [receiver, sender] = [messages[k], messages[k + 1]];
      const answers = roles[sender] === FOLLOWER && conditions[sender] === 0;
      ends[2 * k] = ends[2 * k + 1] = receiver;
      ends[2 * k + 2] = answers ? receiver : sender;
      ends[2 * k + 3] = sender;
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, lines.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, ends, gl.DYNAMIC_DRAW);
    lines.count = messages.length;
  }

  /** The texels that the shaders fetch. */
  #pack(panel) {
    const { positions, velocities, accelerations, roles, groups, conditions } = panel;
    const present = groupsOf(panel);
    // Each group has a colour; a single one has none, and its agents show their headings.
    const colours = new Uint8Array(256);
    if (present.length > 1) present.forEach((group, k) => (colours[group] = 1 + (k % GROUPS)));
    const texels = new Float32Array(4 * ROW * Math.max(1, Math.ceil((2 * roles.length) / ROW)));
    // Agents that work are told apart by their roles, others by how they failed.
    const kindOf = (i) => (conditions[i] ? OBSTACLE + conditions[i] : roles[i]);
    const tally = Array(OBSTACLE + 1 + FAILURES.length).fill(0);
    roles.forEach((_, i) => tally[kindOf(i)]++);
    let start = 0;
    this.kinds = tally.map((count) => ({ start: (start += count) - count, count }));
    const next = this.kinds.map((kind) => kind.start);
    roles.forEach((_, i) => {
      for (let k = 0; k < 2; k++) {
        texels[8 * i + k] = positions[2 * i + k];
        texels[8 * i + 2 + k] = velocities[2 * i + k];
        texels[8 * i + 4 + k] = accelerations[2 * i + k];
      }
      texels[8 * i + 7] = conditions[i] ? FAILED : colours[groups[i]];
      texels[8 * next[kindOf(i)]++ + 6] = i;
    });
    return texels;
  }

  /** A texture to write to: the present frame's, unless that becomes a slot; then the oldest slot's, if it must go. */
  #spare() {
    if (!this.now) return undefined;
    const last = this.past.at(-1);
    if (last && this.now.time - last.time < TRAIL / this.slots - 1e-6) return this.now.agents; // times are rounded
    this.past.push(this.now);
    return this.past.length > this.slots ? this.past.shift().agents : undefined;
  }

  #texture() {
    const gl = this.#gl;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    return texture;
  }
}
