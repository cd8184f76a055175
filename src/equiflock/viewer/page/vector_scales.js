/** Scales of vectors of different units: each kind is drawn relative to its recent maximum. */

import { formatChannel } from "./player/names.js";

/** Time in which a maximum halves. */
const HALF_LIFE_MS = 1000;

/** Recent maxima of the norms of vectors, by panel and kind, which fall slowly, so that lengths are comparable. */
export class Scales {
  #maxima = new Map();
  #updatedAt = 0;

  clear() {
    this.#maxima.clear();
  }

  /** Return the maximum of a kind in a panel; 1 if there were no vectors other than 0. */
  get(panel, kind) {
    return this.#maxima.get(`${panel} ${kind}`) || 1;
  }

  /** Take the vectors of an answer into account; `now` is in milliseconds. */
  update(panels, now) {
    const decay = 0.5 ** ((now - this.#updatedAt) / HALF_LIFE_MS);
    this.#updatedAt = now;
    for (const [key, value] of this.#maxima) this.#maxima.set(key, decay * value);
    panels.forEach((panel, i) => {
      for (const hop of panel?.observations ?? [])
        hop.forEach((vector, c) => this.#raise(i, formatChannel(...panel.channels[c]), Math.hypot(...vector)));
      this.#raise(i, "acceleration", Math.hypot(...(panel?.commanded ?? [])));
    });
  }

  #raise(panel, kind, value) {
    const key = `${panel} ${kind}`;
    this.#maxima.set(key, Math.max(this.#maxima.get(key) ?? 0, value));
  }
}
