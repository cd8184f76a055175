/** Draws flocks on one canvas with one WebGL2 context, in one or two panels. */

import { FlockBuffers } from "./flock_buffers.js";
import { GpuLines } from "./gpu_lines.js";
import { PALETTES } from "./palettes.js";
import { buildPrograms, DART_VERTICES, RING_VERTICES } from "./shaders.js";
import { SoftwareLines } from "./software_lines.js";

const MIN_DART_PX = 5; // length of a dart, in css pixels
const MAX_DART_PX = 26;
const MIN_GRID_PX = 40; // minimum distance between grid lines, in css pixels
const MIN_SOFTWARE_LINES = 5000; // fewer take WebGL less time than the processor needs to show them
const NO_PAINT = [0, 0, 0, 0]; // agents are drawn in their own colours

/** Convert a colour to [r, g, b, a], or a list of colours to one flat list of these; pass other values through. */
function toGpuColours(value) {
  if (Array.isArray(value)) return value.flatMap(parseColour);
  return typeof value === "string" ? parseColour(value) : value;
}

/** Convert "#rrggbb" or "#rrggbbaa" to [r, g, b, a] from 0 to 1. */
function parseColour(hex) {
  return hex
    .slice(1)
    .padEnd(8, "f")
    .match(/../g)
    .map((byte) => parseInt(byte, 16) / 255);
}

/**
 * Return whether WebGL renders in software, where antialiasing would double the time of a picture; false if unknown.
 */
function detectSoftware() {
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl?.getExtension("WEBGL_debug_renderer_info");
  const renderer = info ? gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : "";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(renderer);
}

/** Return the distance between grid lines in world units: the least R 2^k of MIN_GRID_PX or more on the screen. */
function computeGridSpacing(scale, commRadius) {
  return commRadius * 2 ** Math.ceil(Math.log2(MIN_GRID_PX / (commRadius * scale)));
}

/**
 * Return the distance between clearly visible grid lines, in world units: twice the spacing while every other line
 * fades.
 */
export function computeVisibleSpacing(scale, commRadius) {
  const spacing = computeGridSpacing(scale, commRadius);
  return spacing * scale < 1.5 * MIN_GRID_PX ? 2 * spacing : spacing;
}

/** Draws frames on a canvas: grid, obstacles, trails, edges, agents and a highlight, in one or two panels. */
export class Scene {
  #canvas;
  #gl;
  #theme;
  #palette; // of the theme, with colours as numbers
  #ratio = 1; // device pixels per css pixel
  #contextLoss; // extension to give the context back
  #programs;
  #gpuLines;
  #softwareLines;
  #minSoftwareLines; // least number of lines of a panel that the processor draws
  #frame; // the uploaded frame
  #flocks;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{isSoftware: boolean, minSoftwareLines: number}} options
   *   isSoftware: whether WebGL renders in software, so that edges are left jagged, and the processor draws the lines
   *   of a panel that has `minSoftwareLines` or more
   * @throws {Error} if WebGL2 is unavailable
   */
  constructor(canvas, { isSoftware = detectSoftware(), minSoftwareLines = MIN_SOFTWARE_LINES } = {}) {
    this.#canvas = canvas;
    this.#minSoftwareLines = isSoftware ? minSoftwareLines : Infinity;
    const options = { alpha: false, antialias: !isSoftware, depth: false, preserveDrawingBuffer: true };
    this.#gl = canvas.getContext("webgl2", options);
    if (!this.#gl) throw new Error("WebGL2 is unavailable: enable it, or use another browser.");
    this.#contextLoss = this.#gl.getExtension("WEBGL_lose_context");
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => this.#createResources());
    this.theme = "dark";
    this.#createResources();
    this.resize();
  }

  /** "dark" or "light"; setting it clears the canvas, so call `draw` then. */
  get theme() {
    return this.#theme;
  }

  set theme(name) {
    this.#theme = name;
    const entries = Object.entries(PALETTES[name]).map(([key, value]) => [key, toGpuColours(value)]);
    this.#palette = Object.fromEntries(entries);
    this.#clear(this.#palette.background, 0, 0, this.#canvas.width, this.#canvas.height);
  }

  /** Fit the drawing buffer to the canvas's css size, and clear it; call it when the size changes, and then `draw`. */
  resize() {
    this.#ratio = Math.min(window.devicePixelRatio, 2);
    this.#canvas.width = Math.max(1, Math.round(this.#canvas.clientWidth * this.#ratio));
    this.#canvas.height = Math.max(1, Math.round(this.#canvas.clientHeight * this.#ratio));
    this.#clear(this.#palette.background, 0, 0, this.#canvas.width, this.#canvas.height);
  }

  /** Give the WebGL context back, of which a browser has few; the canvas is blank until `restore`. */
  release() {
    if (!this.#gl.isContextLost()) this.#contextLoss?.loseContext();
  }

  /** Take a context again after `release`; then draw. */
  restore() {
    if (this.#gl.isContextLost()) this.#contextLoss?.restoreContext();
  }

  /**
   * Return the rectangles of the panels, a hairline apart: in as many columns as give them the longest shorter side,
   * so two are side by side on a wide canvas, else stacked.
   * @param {number} panels number of panels
   * @returns {{x: number, y: number, width: number, height: number}[]} css pixels, y down from the canvas's top
   */
  computeViewports(panels) {
    const ratio = this.#ratio;
    const { width, height } = this.#canvas;
    const shorterSide = (columns) => Math.min(width / columns, height / Math.ceil(panels / columns));
    const choices = Array.from({ length: panels }, (_, k) => k + 1);
    const columns = choices.reduce((best, each) => (shorterSide(each) > shorterSide(best) ? each : best), 1);
    // In whole device pixels.
    const pitch = [(width + 1) / columns, (height + 1) / Math.ceil(panels / columns)].map(Math.ceil);
    return Array.from({ length: panels }, (_, i) => {
      const [x, y] = [(i % columns) * pitch[0], Math.floor(i / columns) * pitch[1]];
      const [w, h] = [Math.min(pitch[0] - 1, width - x), Math.min(pitch[1] - 1, height - y)];
      return { x: x / ratio, y: y / ratio, width: w / ratio, height: h / ratio };
    });
  }

  /** Forget the trails and the uploaded frame, for another flight; the canvas keeps its picture. */
  clearTrails() {
    for (const flock of this.#flocks) flock.clear();
    this.#frame = null;
  }

  /**
   * Draw a frame. It is uploaded the first time; drawing it again with another `ahead` is cheap. Panels whose flight
   * has ended ignore `ahead`. Nothing is drawn while the WebGL context is lost.
   * @param {{time: number, panels: object[]}} frame
   * @param {number} ahead seconds since the frame's time
   * @param {import("./camera.js").Camera[]} cameras one per panel
   * @param {{edges: boolean, trails: boolean, commRadius: number, highlight: ?object}} look
   *   commRadius: R, the grid's unit; highlight: {panel, kind} with {x, y, radius} in world coordinates, or with
   *   {px, py, pixels} in css pixels from the panel's top left, independent of the camera
   */
  draw(frame, ahead, cameras, look) {
    const gl = this.#gl;
    if (gl.isContextLost()) return;
    if (frame !== this.#frame) {
      this.#flocks = frame.panels.map((_, i) => this.#flocks[i] ?? new FlockBuffers(gl));
      this.#flocks.forEach((flock, i) => flock.upload(frame.panels[i], frame.time));
      this.#frame = frame;
    }
    const { width, height } = this.#canvas;
    const rects = this.computeViewports(frame.panels.length);
    if (rects.length > 1) this.#clear(this.#palette.hairline, 0, 0, width, height);
    rects.forEach((rect, i) => {
      const [x, y, w, h] = [rect.x, rect.y, rect.width, rect.height].map((css) => Math.round(css * this.#ratio));
      this.#clear(this.#palette.background, x, height - y - h, w, h);
      this.#drawPanel(i, frame.panels[i].hasEnded ? 0 : ahead, cameras[i], rect, [w, h], look);
    });
  }

  /** Fill a rectangle (x, y, width, height in device pixels, y up) of the canvas, and confine further drawing to it. */
  #clear(colour, ...rectangle) {
    const gl = this.#gl;
    gl.viewport(...rectangle);
    gl.scissor(...rectangle);
    gl.clearColor(...colour);
    gl.clear(gl.COLOR_BUFFER_BIT);
  }

  /** Draw panel i into its rectangle, `pixels` are its device pixels, back to front; `look` is that of `draw`. */
  #drawPanel(i, ahead, camera, rect, pixels, look) {
    const gl = this.#gl;
    const flock = this.#flocks[i];
    const palette = this.#palette;
    const programs = this.#programs;
    const { scale } = camera;
    const relative = ([x, y]) => [x - camera.x, y - camera.y]; // to the camera, in float64, as the GPU has float32
    const { lightness, chroma } = palette;
    const groups = [...palette.groups, ...palette.failed];
    const view = { viewport: [rect.width, rect.height], scale, lightness, chroma, groups };
    const agents = { ...view, agents: flock.current.agents, origin: relative(flock.current.panel.origin), ahead };
    const [followers, leaders, obstacles, silent, stopped, drifting] = flock.kinds;
    // 0.16 world units at 100 pixels per unit; when zooming out, darts shrink more slowly than distances.
    const size = Math.min(Math.max(1.6 * Math.sqrt(scale), MIN_DART_PX), MAX_DART_PX);

    const circle = ([x, y, radius], paint, inner = radius * scale - 1.5) => {
      programs.circles({ ...view, centre: relative([x, y]), radii: [inner, radius * scale], paint });
      gl.drawArrays(gl.TRIANGLES, 0, RING_VERTICES);
    };
    const rings = ({ start, count }, radii, paint) => {
      programs.rings({ ...agents, start, radii, paint });
      gl.drawArrays(gl.TRIANGLES, 0, RING_VERTICES * count);
    };
    const darts = ({ start, count }, length, outline, paint) => {
      programs.darts({ ...agents, start, size: length, outline, paint });
      gl.drawArrays(gl.TRIANGLES, 0, DART_VERTICES * count);
    };

    this.#drawGrid(view, camera, look.commRadius);
    for (const disk of flock.disks) {
      circle(disk, palette.disk, 0);
      circle(disk, palette.obstacle);
    }
    flock.marks.draw(programs, view, relative, { palette, ahead, size });
    const lines = flock.countLines(look) < this.#minSoftwareLines ? this.#gpuLines : this.#softwareLines;
    lines.draw(flock, { look, palette, uniforms: agents, ahead, relative, pixels });
    rings(obstacles, [0, 1 + size / 8], palette.obstacle);
    // Failed agents are grey: a disc if stopped, a dart if drifting, a hollow dart if silent.
    rings(stopped, [0, size / 3], palette.failed);
    darts(drifting, size, 0, NO_PAINT);
    darts(silent, size, 1.5, palette.failed);
    darts(silent, size, 0, palette.background);
    darts(followers, size, 0, NO_PAINT);
    rings(leaders, [size + 4, size + 5.25], palette.ink);
    darts(leaders, 1.5 * size, 1.25, palette.ink);
    darts(leaders, 1.5 * size, 0, NO_PAINT);
    if (look.highlight?.panel === i) {
      const { x, y, radius, px, py, pixels, kind } = look.highlight;
      const onScreen = pixels !== undefined;
      circle(onScreen ? [...camera.toWorld(px, py, rect), pixels / scale] : [x, y, radius], palette[kind]);
    }
  }

  /** Draw the lines at multiples of the grid spacing; every other one fades in as the view zooms in. */
  #drawGrid(view, camera, commRadius) {
    const gl = this.#gl;
    const spacing = computeGridSpacing(view.scale, commRadius);
    const [w, h] = view.viewport.map((pixels) => pixels / view.scale);
    const [i, j] = [Math.ceil((camera.x - w / 2) / spacing), Math.ceil((camera.y - h / 2) / spacing)];
    const [columns, rows] = [Math.ceil(w / spacing), Math.ceil(h / spacing)];
    const first = [i * spacing - camera.x, j * spacing - camera.y];
    const nearness = (spacing * view.scale) / MIN_GRID_PX - 1;
    const paint = this.#palette.grid;
    this.#programs.grid({ ...view, first, parity: [i & 1, j & 1], columns, spacing, nearness, paint });
    gl.drawArrays(gl.LINES, 0, 2 * (columns + rows));
  }

  /** Create the state of the WebGL context, also after the context was lost and restored. */
  #createResources() {
    const gl = this.#gl;
    this.#frame = null;
    this.#flocks = [];
    this.#programs = buildPrograms(gl);
    this.#gpuLines = new GpuLines(gl, this.#programs);
    this.#softwareLines = new SoftwareLines(gl, this.#programs);
    gl.enable(gl.SCISSOR_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  }
}
