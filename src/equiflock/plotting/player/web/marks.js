/** Marks: what a scenario asks of a flock, such as a goal, places in a pattern, gates and walls. */

import { OBSTACLE } from "./frames.js";
import { BAND_VERTICES, MARK_VERTICES, RING_VERTICES, TEXTURE_WIDTH } from "./shaders.js";

/** Kinds and shapes, in the order of the codes in a frame. A kind is also the name of its colour in a palette. */
export const MARK_KINDS = ["goal", "place", "gate", "wall"];
/** To which the flock flies. */
const AIMS = ["goal", "gate"];
const CIRCLE = 0,
  POINT = 1,
  SEGMENT = 2;
/** What the legend calls them. */
const LEGEND = { goal: "goal", place: "place", gate: "gate", wall: "wall" };

const RING_PX = 1.5; // width of a circle's rim
const POINT_SIZE = 0.62; // radius of a point's ring, in lengths of a dart
const MIN_POINT_PX = 3;
const WALL_PX = 5; // width of a segment
const GATE_PX = 3;
const TINT = 0.13; // opacity inside a circle, as a share of the rim's

/** Return the marks of a panel as {kind, shape, moves, numbers}, with positions relative to the panel's origin. */
function listMarks({ marks, markCodes }) {
  return Array.from({ length: markCodes.length / 4 }, (_, i) => {
    const [kind, shape, moves] = markCodes.subarray(4 * i);
    return { kind: MARK_KINDS[kind], shape, moves: moves === 1, numbers: marks.subarray(4 * i, 4 * i + 4) };
  });
}

/** Return the kinds of marks in a panel as [kind, text of the legend], in the order of MARK_KINDS. */
export function listMarkKinds({ markCodes }) {
  const present = MARK_KINDS.filter((_, code) => markCodes.some((each, i) => i % 4 === 0 && each === code));
  return present.map((kind) => [kind, LEGEND[kind]]);
}

/** Return the marks for a camera, {x, y, radius, moves, isAim} in world coordinates; segments by their ends. */
export function listLandmarks(panel) {
  const [x, y] = panel.origin;
  return listMarks(panel).flatMap(({ kind, shape, moves, numbers: [u, v, third, fourth] }) => {
    const isAim = AIMS.includes(kind);
    const first = { x: x + u, y: y + v, radius: shape === CIRCLE ? third : 0, moves, isAim };
    return shape === SEGMENT ? [first, { ...first, x: x + third, y: y + fourth }] : [first];
  });
}

/** Return the mean velocity of the working agents of a panel; [0, 0] if none works. */
function computeMeanVelocity({ velocities, roles, conditions }) {
  const sum = [0, 0];
  let count = 0;
  roles.forEach((role, i) => {
    if (role === OBSTACLE || conditions[i]) return;
    count += 1;
    sum[0] += velocities[2 * i];
    sum[1] += velocities[2 * i + 1];
  });
  return sum.map((each) => each / Math.max(count, 1));
}

/** The marks of one panel, with the GPU data of points and segments. */
export class MarkBuffers {
  #gl;
  #texture = null;
  #origin = [0, 0];
  #velocity = [0, 0];
  #circles = []; // {kind, moves, numbers}
  #runs = []; // {kind, shape, moves, start, count} of points and segments in the texture

  constructor(gl) {
    this.#gl = gl;
  }

  /** Take the marks of a panel of a frame. */
  upload(panel) {
    const marks = listMarks(panel);
    this.#origin = panel.origin;
    this.#velocity = marks.some(({ moves }) => moves) ? computeMeanVelocity(panel) : [0, 0];
    this.#circles = marks.filter(({ shape }) => shape === CIRCLE);
    this.#runs = [];
    const others = marks.filter(({ shape }) => shape !== CIRCLE);
    others.forEach(({ kind, shape, moves }, start) => {
      const last = this.#runs.at(-1);
      if (last && last.kind === kind && last.shape === shape && last.moves === moves) last.count += 1;
      else this.#runs.push({ kind, shape, moves, start, count: 1 });
    });
    if (others.length) this.#fillTexture(others);
  }

  #fillTexture(marks) {
    const gl = this.#gl;
    if (!this.#texture) {
      this.#texture = gl.createTexture();
      gl.bindTexture(gl.TEXTURE_2D, this.#texture);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    }
    const height = Math.ceil(marks.length / TEXTURE_WIDTH);
    const texels = new Float32Array(4 * TEXTURE_WIDTH * height);
    marks.forEach(({ numbers }, i) => texels.set(numbers, 4 * i));
    gl.bindTexture(gl.TEXTURE_2D, this.#texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32F, TEXTURE_WIDTH, height, 0, gl.RGBA, gl.FLOAT, texels);
  }

  /**
   * Draw the marks, below the agents.
   * @param {object} programs of shaders.js
   * @param {object} view uniforms that all programs share
   * @param {function(number[]): number[]} relative converts world coordinates to those relative to the camera
   * @param {object} look palette; ahead: seconds since the frame; size: length of a dart in css pixels
   */
  draw(programs, view, relative, { palette, ahead, size }) {
    const gl = this.#gl;
    const originOf = ({ moves }) => {
      const time = moves ? ahead : 0;
      return relative(this.#origin.map((each, k) => each + this.#velocity[k] * time));
    };
    for (const mark of this.#circles) {
      const [x, y, radius] = mark.numbers;
      const [left, bottom] = originOf(mark);
      const rim = radius * view.scale;
      const paint = palette[mark.kind];
      for (const [inner, opacity] of [
        [0, TINT],
        [rim - RING_PX, 1],
      ]) {
        const colour = [...paint.slice(0, 3), paint[3] * opacity];
        programs.circles({ ...view, centre: [left + x, bottom + y], radii: [inner, rim], paint: colour });
        gl.drawArrays(gl.TRIANGLES, 0, RING_VERTICES);
      }
    }
    for (const run of this.#runs) {
      const { kind, shape, start, count } = run;
      const uniforms = { ...view, agents: this.#texture, origin: originOf(run), start, paint: palette[kind] };
      if (shape === POINT) {
        programs.markPoints({ ...uniforms, size: Math.max(POINT_SIZE * size, MIN_POINT_PX) });
        gl.drawArrays(gl.LINES, 0, MARK_VERTICES * count);
      } else {
        programs.markSegments({ ...uniforms, size: kind === "wall" ? WALL_PX : GATE_PX });
        gl.drawArrays(gl.TRIANGLES, 0, BAND_VERTICES * count);
      }
    }
  }
}
