/** GPU data of the flocks. */

import { FAILURES, listGroups, OBSTACLE } from "./frames.js";
import { MarkBuffers } from "./marks.js";
import { FAILED_COLOUR, GROUP_COLOUR_COUNT, TEXTURE_WIDTH } from "./shaders.js";

export const TRAIL_SECONDS = 1.44; // duration of a trail, in simulated seconds
const MAX_TRAIL_SEGMENTS = 16000; // unless that leaves fewer than 4 segments per agent

/** GPU data of one panel: the newest frame, and older frames as slots of the trails. */
export class FlockBuffers {
  current = null; // newest slot: {agents: texture, panel, colours (0: by heading), time, count}
  trailSlots = []; // older slots, oldest first
  kinds = []; // {start, count} of followers, leaders, obstacle agents and each kind of failure, in that order
  disks = []; // [x, y, radius] in world coordinates
  /** {pairs, singles} of messages in use, each {buffer, count, type} of indices of agents; singles follow a zero. */
  edges;
  /** The same of messages that did not arrive. */
  lostEdges;
  /** What the scenario asks of the flock. */
  marks;
  #gl;
  #edgesOf = null; // panel whose edges are uploaded

  constructor(gl) {
    this.#gl = gl;
    this.marks = new MarkBuffers(gl);
    const makeBuffer = () => ({ buffer: gl.createBuffer(), count: 0, type: gl.UNSIGNED_SHORT });
    [this.edges, this.lostEdges] = [0, 1].map(() => ({ pairs: makeBuffer(), singles: makeBuffer() }));
  }

  /** Number of segments of a trail: fewer for large flocks, which are seen from further away. */
  get slotCount() {
    return Math.min(Math.max(Math.floor(MAX_TRAIL_SEGMENTS / this.current.count), 4), 24);
  }

  /** Count the lines of the edges and trails that `look` asks for. */
  countLines({ edges, trails }) {
    const { panel, count } = this.current;
    const counts = [panel.edges, panel.lostEdges].map(({ pairs, singles }) => (pairs.length + singles.length) / 2);
    return (edges ? counts[0] + counts[1] : 0) + (trails ? this.trailSlots.length * count : 0);
  }

  /**
   * Upload a panel of a frame as the newest slot; the previous one becomes a trail slot if enough time lies between.
   * Trails are cleared if time goes back or jumps by more than TRAIL_SECONDS, or if the number of agents changes.
   */
  upload(panel, time) {
    const gl = this.#gl;
    const count = panel.roles.length;
    // A jump in time clears the trails.
    const jumped = this.current && (time < this.current.time || time > this.current.time + TRAIL_SECONDS);
    if (jumped || this.current?.count !== count) this.clear();
    this.current = { agents: this.#takeTexture() ?? this.#createTexture(), panel, time, count };
    gl.bindTexture(gl.TEXTURE_2D, this.current.agents);
    const texels = this.#pack(panel);
    const height = texels.length / TEXTURE_WIDTH / 4;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32F, TEXTURE_WIDTH, height, 0, gl.RGBA, gl.FLOAT, texels);
    this.marks.upload(panel);
    const [x, y] = panel.origin;
    this.disks = Array.from({ length: panel.disks.length / 3 }, (_, k) => {
      const [dx, dy, radius] = panel.disks.subarray(3 * k);
      return [x + dx, y + dy, radius];
    });
  }

  /** Upload the edges of the newest frame, unless that has been done. */
  uploadEdges() {
    const { panel } = this.current;
    if (this.#edgesOf === panel) return;
    this.#edgesOf = panel;
    const gl = this.#gl;
    for (const kind of ["edges", "lostEdges"]) {
      this.#uploadIndices(this[kind].pairs, panel[kind].pairs, gl.ELEMENT_ARRAY_BUFFER, 0);
      this.#uploadIndices(this[kind].singles, panel[kind].singles, gl.ARRAY_BUFFER, 1);
    }
  }

  /** Delete the textures of the newest frame and of the trails; edges and disks stay. */
  clear() {
    for (const slot of this.trailSlots) this.#gl.deleteTexture(slot.agents);
    this.#gl.deleteTexture(this.current?.agents ?? null);
    this.trailSlots = [];
    this.current = null;
  }

  /** Upload the indices of agents as they are, after a number of zeros. */
  #uploadIndices(indices, agents, target, zeros) {
    const gl = this.#gl;
    indices.count = agents.length;
    indices.type = agents instanceof Uint16Array ? gl.UNSIGNED_SHORT : gl.UNSIGNED_INT;
    if (!indices.count) return;
    const start = zeros * agents.BYTES_PER_ELEMENT;
    gl.bindBuffer(target, indices.buffer);
    gl.bufferData(target, start + agents.byteLength, gl.DYNAMIC_DRAW);
    gl.bufferSubData(target, start, agents);
  }

  /** Return the agents as texels, as shaders.js describes them, and set `kinds` and colours. Failed agents are grey. */
  #pack(panel) {
    const { positions, velocities, accelerations, roles, groups, conditions } = panel;
    const present = listGroups(panel);
    // With several groups each has a colour; with one, agents are coloured by heading (0).
    const groupColours = new Uint8Array(256);
    if (present.length > 1) present.forEach((group, k) => (groupColours[group] = 1 + (k % GROUP_COLOUR_COUNT)));
    const colours = groups.map((group, i) => (conditions[i] ? FAILED_COLOUR : groupColours[group]));
    this.current.colours = colours;
    const texels = new Float32Array(4 * TEXTURE_WIDTH * Math.max(1, Math.ceil((2 * roles.length) / TEXTURE_WIDTH)));
    // The kind of a working agent is its role, that of a failed agent its failure.
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
      texels[8 * i + 7] = colours[i];
      texels[8 * next[kindOf(i)]++ + 6] = i;
    });
    return texels;
  }

  /**
   * Return a texture to overwrite: the current one unless it becomes a trail slot, then that of a dropped slot, if any.
   */
  #takeTexture() {
    if (!this.current) return undefined;
    const last = this.trailSlots.at(-1);
    const interval = TRAIL_SECONDS / this.slotCount - 1e-6; // 1e-6 for the rounding of times
    if (last && this.current.time - last.time < interval) return this.current.agents;
    this.trailSlots.push(this.current);
    return this.trailSlots.length > this.slotCount ? this.trailSlots.shift().agents : undefined;
  }

  /** Return a new texture without interpolation. */
  #createTexture() {
    const gl = this.#gl;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    return texture;
  }
}
