/** Saved flights inside a page: frames in the binary format, packed by embedding.py. */

import { readFrame } from "./frames.js";

/** Tolerance of time comparisons, in seconds. */
const TIME_TOLERANCE = 1e-9;

/** The frames of one or several flights with the same times. */
export class Recording {
  #times;
  #buffers;
  #frames = [];

  /**
   * Unpack the frames.
   * @param {{times: number[], sizes: number[], frames: string}} content times in seconds, sizes in bytes of each frame,
   *   and all frames, compressed by gzip and encoded in base64
   * @returns {Promise<Recording>}
   */
  static async unpack({ times, sizes, frames }) {
    const bytes = Uint8Array.from(atob(frames), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const buffer = await new Response(stream).arrayBuffer();
    let end = 0;
    const buffers = sizes.map((size) => buffer.slice(end, (end += size)));
    return new Recording(times, buffers);
  }

  /** @param {number[]} times of the frames, in seconds @param {ArrayBuffer[]} buffers their contents */
  constructor(times, buffers) {
    this.#times = times;
    this.#buffers = buffers;
  }

  /** Return {frame, ahead}: the last frame up to a time, and the seconds from it to the time; 0 after the last one. */
  at(time) {
    const times = this.#times;
    let index = times.findLastIndex((each) => each <= time + TIME_TOLERANCE);
    if (index < 0) index = 0;
    this.#frames[index] ??= readFrame(this.#buffers[index]);
    const ahead = index < times.length - 1 ? Math.max(time - times[index], 0) : 0;
    return { frame: this.#frames[index], ahead };
  }
}
