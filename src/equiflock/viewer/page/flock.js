/** Flocks on the graphics card. */

import { groupsOf } from "./frames.js";
import { GROUPS, ROW } from "./shaders.js";

export const TRAIL = 1.44; // simulated seconds that a trail lasts
const TRAIL_WORK = 16000; // segments drawn, unless that leaves fewer than 4 an agent

/** What the GPU holds of one panel. A frame that gives way to a newer one stays behind as a slot of the trails. */
export class Flock {
  now = null; // {agents: texture, origin, time, count}
  past = []; // the same, oldest first
  roles = []; // {start, count} of followers, leaders and obstacle agents in the order of roles
  disks = []; // [x, y, radius] in world coordinates
  edges; // {buffer, count}
  #gl;

  constructor(gl) {
    this.#gl = gl;
    this.edges = { buffer: gl.createBuffer(), count: 0 };
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
    gl.bindBuffer(gl.ARRAY_BUFFER, this.edges.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, panel.edges, gl.DYNAMIC_DRAW);
    this.edges.count = panel.edges.length;
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

  /** The texels that the shaders fetch. */
  #pack(panel) {
    const { positions, velocities, accelerations, roles, groups } = panel;
    const present = groupsOf(panel);
    // Each group has a colour; a single one has none, and its agents show their headings.
    const colours = new Uint8Array(256);
    if (present.length > 1) present.forEach((group, k) => (colours[group] = 1 + (k % GROUPS)));
    const texels = new Float32Array(4 * ROW * Math.max(1, Math.ceil((2 * roles.length) / ROW)));
    const tally = [0, 0, 0];
    for (const role of roles) tally[role]++;
    const next = [0, tally[0], tally[0] + tally[1]];
    this.roles = tally.map((count, role) => ({ start: next[role], count }));
    roles.forEach((role, i) => {
      for (let k = 0; k < 2; k++) {
        texels[8 * i + k] = positions[2 * i + k];
        texels[8 * i + 2 + k] = velocities[2 * i + k];
        texels[8 * i + 4 + k] = accelerations[2 * i + k];
      }
      texels[8 * i + 7] = colours[groups[i]];
      texels[8 * next[role]++ + 6] = i;
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
