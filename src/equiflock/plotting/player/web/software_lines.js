/** Draws trails and edges with the processor, and shows them with WebGL. */

import { TRAIL_SECONDS } from "./flock_buffers.js";
import { LineImage, premultiply } from "./line_image.js";

const HUES = 256; // headings that have colours of their own

/**
 * Lines of one panel at a time, as `GpuLines` draws them. Where WebGL renders in software, it takes ten times as long
 * for a line, but showing the image of the lines takes as long as thousands of them.
 */
export class SoftwareLines {
  #gl;
  #programs;
  #image = new LineImage();
  #texture = null;
  #textureSize = [0, 0];
  #colours = { palette: null, list: [] }; // of trails, in a palette

  /** @param {object} programs those of shaders.js */
  constructor(gl, programs) {
    this.#gl = gl;
    this.#programs = programs;
  }

  /**
   * Draw the trails and edges of a panel that `look` asks for.
   * @param {import("./flock_buffers.js").FlockBuffers} flock
   * @param {{look: object, palette: object, uniforms: object, ahead: number, relative: function, pixels: number[]}} view
   *   uniforms: those of the agents; relative: converts a place to one relative to the camera; pixels: width and height
   *   of the panel, in device pixels
   */
  draw(flock, view) {
    const { look, palette, ahead, pixels } = view;
    this.#image.begin(...pixels);
    const places = locateAgents(flock.current.panel, ahead, view);
    if (look.trails) this.#drawTrails(flock, places, view);
    if (look.edges) {
      const { edges, lostEdges } = flock.current.panel;
      this.#drawEdges(edges, places, premultiply(...palette.edge));
      this.#drawEdges(lostEdges, places, premultiply(...palette.lost));
    }
    this.#show(pixels);
  }

  /**
   * Draw the segments from each trail slot to the next, and from the last to the agents, whose pixels are `places`;
   * skip those that have faded. A segment has one opacity.
   */
  #drawTrails({ current, trailSlots }, places, view) {
    const now = current.time + view.ahead;
    const fades = trailSlots.map(({ time }) => Math.max(0, 1 - (now - time) / TRAIL_SECONDS) ** 2);
    const colours = this.#listColours(view.palette);
    trailSlots.forEach((older, k) => {
      const newer = trailSlots[k + 1];
      const newerFade = newer ? fades[k + 1] : 1;
      if (newerFade === 0) return;
      const alpha = (view.palette.trail * (fades[k] + newerFade)) / 2;
      const [from, to] = [locateAgents(older.panel, 0, view), newer ? locateAgents(newer.panel, 0, view) : places];
      // The colours of segments between two slots never change.
      if (newer) newer.segmentColours ??= chooseColours(from, to, newer.colours);
      const chosen = newer ? newer.segmentColours : chooseColours(from, to, current.colours);
      const paints = colours.map(([red, green, blue]) => premultiply(red, green, blue, alpha));
      for (let i = 0; i < current.count; i++)
        this.#image.drawLine(from[2 * i], from[2 * i + 1], to[2 * i], to[2 * i + 1], paints[chosen[i]]);
    });
  }

  /** Draw edges between agents at `places`: pairs as lines, singles as half a line from the receiver. */
  #drawEdges({ pairs, singles }, places, paint) {
    const image = this.#image;
    for (let k = 0; k < pairs.length; k += 2) {
      const [i, j] = [2 * pairs[k], 2 * pairs[k + 1]];
      image.drawLine(places[i], places[i + 1], places[j], places[j + 1], paint);
    }
    for (let k = 0; k < singles.length; k += 2) {
      const [i, j] = [2 * singles[k], 2 * singles[k + 1]];
      const [x, y] = [places[i], places[i + 1]];
      image.drawLine(x, y, (x + places[j]) / 2, (y + places[j + 1]) / 2, paint);
    }
  }

  /** Return the colours of headings, then of groups and failed agents, as [r, g, b, a] from 0 to 1. */
  #listColours(palette) {
    if (this.#colours.palette === palette) return this.#colours.list;
    const canvas = document.createElement("canvas");
    canvas.width = HUES;
    canvas.height = 1;
    const context = canvas.getContext("2d");
    for (let hue = 0; hue < HUES; hue++) {
      context.fillStyle = `oklch(${palette.lightness} ${palette.chroma} ${(360 * hue) / HUES})`;
      context.fillRect(hue, 0, 1, 1);
    }
    const hues = Array.from(context.getImageData(0, 0, HUES, 1).data, (byte) => byte / 255);
    const flat = [...hues, ...palette.groups, ...palette.failed];
    const list = Array.from({ length: flat.length / 4 }, (_, k) => flat.slice(4 * k, 4 * k + 4));
    this.#colours = { palette, list };
    return list;
  }

  /** Blend the image onto the panel. */
  #show(pixels) {
    const gl = this.#gl;
    const { bounds, bytes, width } = this.#image;
    if (!bounds) return;
    this.#bindTexture(pixels);
    const [left, bottom, right, top] = bounds;
    gl.pixelStorei(gl.UNPACK_ROW_LENGTH, width);
    const area = [left, bottom, right - left, top - bottom];
    gl.texSubImage2D(gl.TEXTURE_2D, 0, ...area, gl.RGBA, gl.UNSIGNED_BYTE, bytes, 4 * (bottom * width + left));
    gl.pixelStorei(gl.UNPACK_ROW_LENGTH, 0);
    this.#programs.image({ image: this.#texture, area: bounds, panel: pixels });
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA); // the image is premultiplied
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** Bind the texture, enlarged if the panel does not fit. */
  #bindTexture(pixels) {
    const gl = this.#gl;
    if (pixels.every((size, k) => size <= this.#textureSize[k])) {
      gl.bindTexture(gl.TEXTURE_2D, this.#texture);
      return;
    }
    this.#textureSize = pixels.map((size, k) => Math.max(size, this.#textureSize[k]));
    gl.deleteTexture(this.#texture);
    this.#texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.#texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, ...this.#textureSize);
  }
}

/** Return the pixels x, y (y up) of a panel's agents, `ahead` seconds after its frame, one after the other. */
function locateAgents({ origin, positions, velocities, accelerations }, ahead, { uniforms, relative, pixels }) {
  const places = new Float32Array(positions.length);
  const shift = relative(origin);
  for (let axis = 0; axis < 2; axis++) {
    const scale = (uniforms.scale * pixels[axis]) / uniforms.viewport[axis];
    const middle = shift[axis] * scale + pixels[axis] / 2;
    for (let k = axis; k < places.length; k += 2)
      places[k] = (positions[k] + (velocities[k] + 0.5 * accelerations[k] * ahead) * ahead) * scale + middle;
  }
  return places;
}

/** Return the index of each segment's colour: that of the agent's group or failure or, if it is 0, of the heading. */
function chooseColours(from, to, colours) {
  return Uint16Array.from(colours, (colour, i) => {
    if (colour) return HUES + colour - 1;
    const turns = Math.atan2(to[2 * i + 1] - from[2 * i + 1], to[2 * i] - from[2 * i]) / (2 * Math.PI);
    return Math.round(HUES * (turns + 1)) % HUES;
  });
}
