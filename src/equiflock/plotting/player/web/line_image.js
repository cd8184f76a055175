/** An image of thin lines, drawn by the processor. */

const EVEN_CHANNELS = 0xff00ff; // of a pixel: two bytes, each with room above for a product
const HALF = 0x800080; // rounds the products of two channels

/** Return a colour (channels and alpha from 0 to 1) as a pixel of premultiplied bytes. */
export function premultiply(red, green, blue, alpha) {
  const byte = (channel) => Math.round(255 * channel * alpha);
  return byte(red) | (byte(green) << 8) | (byte(blue) << 16) | (byte(1) << 24);
}

/** Pixels (premultiplied RGBA, rows from below) in which later lines lie over earlier ones, as WebGL blends them. */
export class LineImage {
  width = 0;
  height = 0;
  #pixels = new Uint32Array(0);
  #left = 0; // bounds of what was drawn
  #bottom = 0;
  #right = 0;
  #top = 0;

  /** The pixels as bytes, row by row. */
  get bytes() {
    return new Uint8Array(this.#pixels.buffer);
  }

  /** Rectangle [left, bottom, right, top] in whole pixels that contains all lines; null if it is empty. */
  get bounds() {
    const clamp = (value, size) => Math.min(Math.max(value, 0), size);
    const [left, bottom] = [clamp(Math.floor(this.#left), this.width), clamp(Math.floor(this.#bottom), this.height)];
    const [right, top] = [
      clamp(Math.floor(this.#right) + 1, this.width),
      clamp(Math.floor(this.#top) + 1, this.height),
    ];
    return left < right && bottom < top ? [left, bottom, right, top] : null;
  }

  /** Clear the image, which has this size from now on. */
  begin(width, height) {
    const [, bottom, , top] = this.bounds ?? [0, 0, 0, 0];
    if (width * height > this.#pixels.length) this.#pixels = new Uint32Array(width * height);
    else this.#pixels.fill(0, bottom * this.width, top * this.width);
    [this.width, this.height] = [width, height];
    [this.#left, this.#bottom, this.#right, this.#top] = [Infinity, Infinity, -Infinity, -Infinity];
  }

  /**
   * Draw a line, one pixel wide, between two points (pixels, y up), with a pixel of `premultiply`. Of each column, or
   * row of a steep line, the pixel counts whose centre lies between the points, so lines that meet do not overlap.
   */
  drawLine(x0, y0, x1, y1, paint) {
    this.#left = Math.min(this.#left, x0, x1);
    this.#bottom = Math.min(this.#bottom, y0, y1);
    this.#right = Math.max(this.#right, x0, x1);
    this.#top = Math.max(this.#top, y0, y1);
    const { width, height } = this;
    if (Math.abs(x1 - x0) < Math.abs(y1 - y0)) this.#drawSteps(y0, x0, y1, x1, height, width, width, 1, paint);
    else this.#drawSteps(x0, y0, x1, y1, width, height, 1, width, paint);
  }

  /** Draw a line along the axis u, with |slope| <= 1; sizes and strides are those of the image along u and v. */
  #drawSteps(u0, v0, u1, v1, sizeU, sizeV, strideU, strideV, paint) {
    if (u1 < u0) [u0, v0, u1, v1] = [u1, v1, u0, v0];
    const slope = (v1 - v0) / (u1 - u0);
    const crossing = (v) => Math.ceil(u0 + (v - v0) / slope - 0.5); // first step at or beyond v
    let first = Math.max(Math.ceil(u0 - 0.5), 0);
    let last = Math.min(Math.ceil(u1 - 0.5), sizeU);
    // Clip to the image.
    if (Math.min(v0, v1) < 0 || Math.max(v0, v1) >= sizeV) {
      if (slope === 0) return;
      first = Math.max(first, crossing(slope > 0 ? 0 : sizeV));
      last = Math.min(last, crossing(slope > 0 ? sizeV : 0));
    }
    const pixels = this.#pixels;
    const opacity = paint >>> 24;
    const rest = 256 - opacity - (opacity >> 7); // what remains of the pixel, in 1/256
    // In steps of 1/65536 pixel; a step beyond the last pixel by rounding is outside of the array, or invisible.
    let v = ((v0 + (first + 0.5 - u0) * slope) * 65536) | 0;
    const dv = Math.round(slope * 65536);
    for (let u = first, row = first * strideU; u < last; u++, row += strideU, v += dv) {
      const k = row + Math.imul(v >> 16, strideV);
      const below = pixels[k];
      const even = ((Math.imul(below & EVEN_CHANNELS, rest) + HALF) >>> 8) & EVEN_CHANNELS;
      const odd = (Math.imul((below >>> 8) & EVEN_CHANNELS, rest) + HALF) & ~EVEN_CHANNELS;
      pixels[k] = paint + (even | odd);
    }
  }
}
