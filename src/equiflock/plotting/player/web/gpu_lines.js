/** Draws trails and edges with WebGL. */

import { TRAIL_SECONDS } from "./flock_buffers.js";

/** Lines of one panel at a time; `SoftwareLines` does the same where WebGL renders in software. */
export class GpuLines {
  #gl;
  #programs;

  /** @param {object} programs those of shaders.js */
  constructor(gl, programs) {
    this.#gl = gl;
    this.#programs = programs;
  }

  /**
   * Draw the trails and edges of a panel that `look` asks for.
   * @param {import("./flock_buffers.js").FlockBuffers} flock
   * @param {{look: object, palette: object, uniforms: object, ahead: number, relative: function}} view
   *   uniforms: those of the agents; relative: converts a place to one relative to the camera
   */
  draw(flock, { look, palette, uniforms, ahead, relative }) {
    if (look.trails) this.#drawTrails(flock, { ...uniforms, opacity: palette.trail }, ahead, relative);
    if (!look.edges) return;
    flock.uploadEdges();
    this.#drawEdges(flock.edges, { ...uniforms, paint: palette.edge });
    this.#drawEdges(flock.lostEdges, { ...uniforms, paint: palette.lost });
  }

  /**
   * Draw the segments from each trail slot to the next, and from the last to the agents; skip those that have faded.
   */
  #drawTrails({ current, trailSlots }, uniforms, ahead, relative) {
    const present = { ...current, time: current.time + ahead };
    const fade = ({ time }) => Math.max(0, 1 - (present.time - time) / TRAIL_SECONDS);
    this.#programs.trails(uniforms);
    trailSlots.forEach((older, k) => {
      const newer = trailSlots[k + 1] ?? present;
      if (fade(newer) === 0) return;
      this.#programs.trails({
        before: older.agents,
        agents: newer.agents,
        originBefore: relative(older.panel.origin),
        origin: relative(newer.panel.origin),
        ahead: newer === present ? ahead : 0,
        fade: [fade(older), fade(newer)],
      });
      this.#gl.drawArrays(this.#gl.LINES, 0, 2 * current.count);
    });
  }

  /** Draw edges of FlockBuffers: pairs as lines between their agents, singles as half a line from the receiver. */
  #drawEdges({ pairs, singles }, uniforms) {
    const gl = this.#gl;
    if (pairs.count) {
      this.#programs.edges(uniforms);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, pairs.buffer);
      gl.drawElements(gl.LINES, pairs.count, pairs.type, 0);
    }
    if (singles.count) {
      this.#programs.halfEdges(uniforms);
      gl.bindBuffer(gl.ARRAY_BUFFER, singles.buffer);
      const bytes = singles.type === gl.UNSIGNED_SHORT ? 2 : 4;
      [bytes, 0].forEach((offset, attribute) => {
        gl.vertexAttribIPointer(attribute, 1, singles.type, bytes, offset); // a zero precedes the first index
        gl.enableVertexAttribArray(attribute);
      });
      gl.drawArrays(gl.LINES, 0, singles.count);
      for (const attribute of [0, 1]) gl.disableVertexAttribArray(attribute);
    }
  }
}
