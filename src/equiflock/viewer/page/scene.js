/** Draws flocks: one canvas, one WebGL2 context, one or two panels. */

import { Flock, TRAIL } from "./flock.js";
import { PALETTES } from "./palettes.js";
import { buildPrograms, DART, RING } from "./shaders.js";

const SHORTEST = 5; // darts, in css pixels
const LONGEST = 26;
const GRID = 40; // css pixels between lines, at least
const UNPAINTED = [0, 0, 0, 0]; // the agents' own colours

/** Colours as numbers for the GPU, several of them in a row. */
function colours(value) {
  if (Array.isArray(value)) return value.flatMap(rgba);
  return typeof value === "string" ? rgba(value) : value;
}

function rgba(hex) {
  return hex
    .slice(1)
    .padEnd(8, "f")
    .match(/../g)
    .map((byte) => parseInt(byte, 16) / 255);
}

/** Whether the processor draws, in place of a graphics card: smooth edges would take it twice as long. */
function isSoftware() {
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl?.getExtension("WEBGL_debug_renderer_info");
  const renderer = info ? gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : "";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(renderer);
}

/** Between lines of the grid, in world units: R times a power of 2. */
function gridSpacing(scale, commRadius) {
  return commRadius * 2 ** Math.ceil(Math.log2(GRID / (commRadius * scale)));
}

/** Between those of its lines that are clearly seen: every other one fades in or out. */
export function seenSpacing(scale, commRadius) {
  const spacing = gridSpacing(scale, commRadius);
  return spacing * scale < 1.5 * GRID ? 2 * spacing : spacing;
}

export class Scene {
  #canvas;
  #gl;
  #theme;
  #palette; // the theme's, with colours as numbers
  #ratio = 1; // device pixels per css pixel
  #programs;
  #frame; // the one the GPU holds
  #flocks;

  /**
   * @param {HTMLCanvasElement} canvas
   * @throws {Error} if WebGL2 is missing
   */
  constructor(canvas) {
    this.#canvas = canvas;
    const options = { alpha: false, antialias: !isSoftware(), depth: false, preserveDrawingBuffer: true };
    this.#gl = canvas.getContext("webgl2", options);
    if (!this.#gl) throw new Error("This browser cannot draw flocks: WebGL2 is missing or switched off.");
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => this.#build());
    this.theme = "dark";
    this.#build();
    this.resize();
  }

  /** "dark" or "light". */
  get theme() {
    return this.#theme;
  }

  set theme(name) {
    this.#theme = name;
    this.#palette = Object.fromEntries(Object.entries(PALETTES[name]).map(([key, value]) => [key, colours(value)]));
    this.#clear(this.#palette.background, 0, 0, this.#canvas.width, this.#canvas.height);
  }

  /** Fit the drawing buffer to the canvas's css size; call it when that changes, then draw. */
  resize() {
    this.#ratio = Math.min(window.devicePixelRatio, 2);
    this.#canvas.width = Math.max(1, Math.round(this.#canvas.clientWidth * this.#ratio));
    this.#canvas.height = Math.max(1, Math.round(this.#canvas.clientHeight * this.#ratio));
    this.#clear(this.#palette.background, 0, 0, this.#canvas.width, this.#canvas.height);
  }

  /**
   * Where the panels are: side by side on a wide canvas, else stacked, a hairline apart.
   * @param {number} panels  how many there are
   * @returns {{x: number, y: number, width: number, height: number}[]} css pixels, y down from the canvas's top
   */
  viewports(panels) {
    const ratio = this.#ratio;
    const { width, height } = this.#canvas;
    const wide = width > height;
    const pitch = Math.ceil(((wide ? width : height) + 1) / panels); // in whole device pixels
    return Array.from({ length: panels }, (_, i) => ({
      x: (wide ? i * pitch : 0) / ratio,
      y: (wide ? 0 : i * pitch) / ratio,
      width: (wide ? Math.min(pitch - 1, width - i * pitch) : width) / ratio,
      height: (wide ? height : Math.min(pitch - 1, height - i * pitch)) / ratio,
    }));
  }

  /** Start the trails anew, as when another flight begins. */
  forgetTrails() {
    for (const flock of this.#flocks) flock.forget();
    this.#frame = null;
  }

  /**
   * Draw a frame. It is uploaded when it is first seen, so drawing it again with another `ahead` is cheap.
   * @param {{time: number, panels: object[]}} frame
   * @param {number} ahead  seconds since the frame's time
   * @param {import("./camera.js").Camera[]} cameras  one per panel
   * @param {{edges: boolean, trails: boolean, commRadius: number, highlight: ?object}} look
   *   commRadius: R, the grid's unit; highlight: {panel, kind}, and {x, y, radius} in world coordinates or {px, py, pixels} in
   *   css pixels from the panel's top left, which stays where it is however the camera moves
   */
  draw(frame, ahead, cameras, look) {
    const gl = this.#gl;
    if (gl.isContextLost()) return;
    if (frame !== this.#frame) {
      this.#flocks = frame.panels.map((_, i) => this.#flocks[i] ?? new Flock(gl));
      this.#flocks.forEach((flock, i) => flock.upload(frame.panels[i], frame.time));
      this.#frame = frame;
    }
    const { width, height } = this.#canvas;
    const rects = this.viewports(frame.panels.length);
    if (rects.length > 1) this.#clear(this.#palette.hairline, 0, 0, width, height);
    rects.forEach((rect, i) => {
      const [x, y, w, h] = [rect.x, rect.y, rect.width, rect.height].map((css) => Math.round(css * this.#ratio));
      this.#clear(this.#palette.background, x, height - y - h, w, h);
      this.#drawPanel(i, frame.panels[i].still ? 0 : ahead, cameras[i], rect, look);
    });
  }

  /** Fill a rectangle of the drawing buffer, and draw into it from now on. */
  #clear(colour, ...rectangle) {
    const gl = this.#gl;
    gl.viewport(...rectangle);
    gl.scissor(...rectangle);
    gl.clearColor(...colour);
    gl.clear(gl.COLOR_BUFFER_BIT);
  }

  #drawPanel(i, ahead, camera, rect, look) {
    const gl = this.#gl;
    const flock = this.#flocks[i];
    const palette = this.#palette;
    const programs = this.#programs;
    const { scale } = camera;
    const seen = ([x, y]) => [x - camera.x, y - camera.y]; // in float64, before the GPU rounds it
    const { lightness, chroma } = palette;
    const groups = [...palette.groups, ...palette.failed];
    const view = { viewport: [rect.width, rect.height], scale, lightness, chroma, groups };
    const agents = { ...view, agents: flock.now.agents, origin: seen(flock.now.origin), ahead };
    const [followers, leaders, obstacles, silent, stopped, drifting] = flock.kinds;
    // 0.16 world units at 100 pixels a unit; seen from afar, darts shrink slower than the world does.
    const size = Math.min(Math.max(1.6 * Math.sqrt(scale), SHORTEST), LONGEST);

    const circle = ([x, y, radius], paint, inner = radius * scale - 1.5) => {
      programs.circles({ ...view, centre: seen([x, y]), radii: [inner, radius * scale], paint });
      gl.drawArrays(gl.TRIANGLES, 0, RING);
    };
    const rings = ({ start, count }, radii, paint) => {
      programs.rings({ ...agents, start, radii, paint });
      gl.drawArrays(gl.TRIANGLES, 0, RING * count);
    };
    const darts = ({ start, count }, length, outline, paint) => {
      programs.darts({ ...agents, start, size: length, outline, paint });
      gl.drawArrays(gl.TRIANGLES, 0, DART * count);
    };

    this.#drawGrid(view, camera, look.commRadius);
    for (const disk of flock.disks) {
      circle(disk, palette.disk, 0);
      circle(disk, palette.obstacle);
    }
    if (look.trails) this.#drawTrails(flock, { ...view, opacity: palette.trail }, ahead, seen);
    if (look.edges) {
      this.#drawLines(flock.edges, { ...agents, paint: palette.edge });
      this.#drawLines(flock.lost, { ...agents, paint: palette.lost });
    }
    rings(obstacles, [0, 1 + size / 8], palette.obstacle);
    // Failed agents are grey: a disc that stands, a dart that drifts, and a hollow one of whom nobody hears.
    rings(stopped, [0, size / 3], palette.failed);
    darts(drifting, size, 0, UNPAINTED);
    darts(silent, size, 1.5, palette.failed);
    darts(silent, size, 0, palette.background);
    darts(followers, size, 0, UNPAINTED);
    rings(leaders, [size + 4, size + 5.25], palette.ink);
    darts(leaders, 1.5 * size, 1.25, palette.ink);
    darts(leaders, 1.5 * size, 0, UNPAINTED);
    if (look.highlight?.panel === i) {
      const { x, y, radius, px, py, pixels, kind } = look.highlight;
      const onScreen = pixels !== undefined;
      circle(onScreen ? [...camera.toWorld(px, py, rect), pixels / scale] : [x, y, radius], palette[kind]);
    }
  }

  /** Lines at multiples of R times a power of 2. */
  #drawGrid(view, camera, commRadius) {
    const gl = this.#gl;
    const spacing = gridSpacing(view.scale, commRadius);
    const [w, h] = view.viewport.map((pixels) => pixels / view.scale);
    const [i, j] = [Math.ceil((camera.x - w / 2) / spacing), Math.ceil((camera.y - h / 2) / spacing)];
    const [columns, rows] = [Math.ceil(w / spacing), Math.ceil(h / spacing)];
    const first = [i * spacing - camera.x, j * spacing - camera.y];
    const nearness = (spacing * view.scale) / GRID - 1;
    const paint = this.#palette.grid;
    this.#programs.grid({ ...view, first, parity: [i & 1, j & 1], columns, spacing, nearness, paint });
    gl.drawArrays(gl.LINES, 0, 2 * (columns + rows));
  }

  #drawLines({ buffer, count }, uniforms) {
    const gl = this.#gl;
    this.#programs.edges(uniforms);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.vertexAttribIPointer(0, 2, gl.UNSIGNED_INT, 0, 0);
    gl.enableVertexAttribArray(0);
    gl.drawArrays(gl.LINES, 0, count);
    gl.disableVertexAttribArray(0);
  }

  /** One draw per slot: the way from there to the next slot, and from the last one to where the agents are now. */
  #drawTrails({ now, past }, uniforms, ahead, seen) {
    const present = { ...now, time: now.time + ahead };
    const fade = ({ time }) => Math.max(0, 1 - (present.time - time) / TRAIL);
    past.forEach((older, k) => {
      const newer = past[k + 1] ?? present;
      if (fade(newer) === 0) return;
      this.#programs.trails({
        ...uniforms,
        before: older.agents,
        agents: newer.agents,
        originBefore: seen(older.origin),
        origin: seen(newer.origin),
        ahead: newer === present ? ahead : 0,
        fade: [fade(older), fade(newer)],
      });
      this.#gl.drawArrays(this.#gl.LINES, 0, 2 * now.count);
    });
  }

  /** Everything that lives in the context, which may be lost and come back empty. */
  #build() {
    const gl = this.#gl;
    this.#frame = null;
    this.#flocks = [];
    this.#programs = buildPrograms(gl);
    gl.enable(gl.SCISSOR_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  }
}
