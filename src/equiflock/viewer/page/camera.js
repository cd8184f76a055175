/** Where a panel looks: the middle and scale of a view that follows a flock, unless the hand says otherwise. */

import { OBSTACLE } from "./frames.js";

const SAMPLE = 400; // agents looked at to find the flock
const MARGIN = 1.25; // of the reach, so that the flock does not touch the edges
const BURST = 2.5; // a flock that spreads to so many times its first reach has burst: its ruins are not chased
const EASE = 0.45; // seconds in which a gap shrinks by a factor e
const SMALLEST = 0.05;
const LARGEST = 600;

const clamp = (scale) => Math.min(Math.max(scale, SMALLEST), LARGEST);

/** The value below which a share of the values lies; sorts a copy. */
function quantile(values, share) {
  return Float64Array.from(values).sort()[Math.floor(share * (values.length - 1))];
}

export class Camera {
  static #zooms = 0;

  /** World coordinates of the middle of the view. */
  x = 0;
  y = 0;
  /** Css pixels per world unit. */
  scale = 100;
  /** Keep the flock's middle in the middle; panning switches it off. */
  following = true;
  /** Follow and fit all of the flock, ruins and all, in place of most of it. */
  everybody = false;
  /** Do not move by itself: a hand is at work, and what it points at must stay where it is. */
  held = false;
  /** While following, also choose the scale so that the flock fits; zooming switches it off. */
  fitting = true;

  #commRadius;
  #agents = 0; // of the panel watched last: a sample of another flock must not be compared with this one's
  #xs = []; // the sample, in world coordinates
  #ys = [];
  #middle = null; // of the flock; null until something was watched
  #reach = 1;
  #firstReach = 0; // 0 until something was watched
  #jump = true; // the next glide arrives at once
  #zoomed = 0; // when the hand zoomed last, in zooms of any camera

  /** @param {number} commRadius  the communication radius R: the view is never closer than 2 R around the middle */
  constructor(commRadius = 1) {
    this.#commRadius = commRadius;
  }

  /**
   * Look at the flock as it is drawn. Call it for every picture, with the `ahead` of that picture.
   *
   * The middle is a median, so that a few lost agents do not drag it away. It trembles as agents overtake each other,
   * so the camera moves by the median displacement of the sample, which is smooth, and `glide` eases out the rest.
   */
  watch(panel, ahead) {
    const { origin, positions, velocities, accelerations, roles, conditions } = panel;
    // Agents that have failed stay behind, and are not waited for.
    const works = conditions.some((condition, i) => !condition && roles[i] !== OBSTACLE);
    const stride = Math.max(1, Math.ceil(roles.length / SAMPLE));
    const at = (k) => positions[k] + (velocities[k] + (accelerations[k] * ahead) / 2) * ahead;
    const xs = [];
    const ys = [];
    for (let i = 0; i < roles.length; i += stride) {
      if (roles[i] === OBSTACLE || (works && conditions[i])) continue;
      xs.push(origin[0] + at(2 * i));
      ys.push(origin[1] + at(2 * i + 1));
    }
    if (xs.length === 0) return;

    if (this.following && !this.held && this.#agents === roles.length && this.#xs.length === xs.length) {
      this.x += quantile(
        xs.map((x, i) => x - this.#xs[i]),
        0.5,
      );
      this.y += quantile(
        ys.map((y, i) => y - this.#ys[i]),
        0.5,
      );
    }
    [this.#agents, this.#xs, this.#ys] = [roles.length, xs, ys];
    if (this.everybody) {
      this.#watchAll(panel, at);
      return;
    }
    const [x, y] = (this.#middle = [quantile(xs, 0.5), quantile(ys, 0.5)]);
    const distances = xs.map((_, i) => Math.hypot(xs[i] - x, ys[i] - y));
    this.#reach = Math.max(MARGIN * quantile(distances, 0.9), 2 * this.#commRadius);
    this.#firstReach ||= this.#reach;
    this.#reach = Math.min(this.#reach, BURST * this.#firstReach);
  }

  #watchAll({ origin, roles }, at) {
    const low = [Infinity, Infinity];
    const high = [-Infinity, -Infinity];
    roles.forEach((role, i) => {
      if (role === OBSTACLE) return;
      for (let k = 0; k < 2; k++) {
        low[k] = Math.min(low[k], at(2 * i + k));
        high[k] = Math.max(high[k], at(2 * i + k));
      }
    });
    this.#middle = [0, 1].map((k) => origin[k] + (low[k] + high[k]) / 2);
    const half = Math.max(high[0] - low[0], high[1] - low[1]) / 2;
    this.#reach = Math.max(MARGIN * half, 2 * this.#commRadius);
  }

  /**
   * Let `seconds` of real time pass: glide towards the flock, equally fast at any frame rate.
   * @param {number} covered css pixels above and below the flock that titles and buttons may cover
   */
  glide(seconds, viewport, covered = 0) {
    if (!this.#middle || !this.following || (this.held && !this.#jump)) return;
    const step = this.#jump ? 1 : 1 - Math.exp(-seconds / EASE);
    this.#jump = false;
    this.x += step * (this.#middle[0] - this.x);
    this.y += step * (this.#middle[1] - this.y);
    if (!this.fitting) return;
    const height = Math.max(viewport.height - covered, 0.6 * viewport.height);
    const fit = clamp(Math.min(viewport.width, height) / (2 * this.#reach));
    this.scale *= (fit / this.scale) ** step;
  }

  /** Drag the world by css pixels, y down. */
  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y += dy / this.scale;
    this.following = false;
  }

  /** Zoom about a point of the viewport, in css pixels from its top left. */
  zoom(factor, px, py, viewport) {
    const [x, y] = this.toWorld(px, py, viewport);
    const before = this.scale;
    this.scale = clamp(before * factor);
    this.x = x + (this.x - x) * (before / this.scale);
    this.y = y + (this.y - y) * (before / this.scale);
    this.fitting = false;
    this.#zoomed = ++Camera.#zooms;
  }

  /** @returns {[number, number]} world coordinates of a point in css pixels from the viewport's top left */
  toWorld(px, py, viewport) {
    return [this.x + (px - viewport.width / 2) / this.scale, this.y - (py - viewport.height / 2) / this.scale];
  }

  /** @returns {[number, number]} css pixels from the viewport's top left of a point in world coordinates */
  toScreen(x, y, viewport) {
    return [viewport.width / 2 + (x - this.x) * this.scale, viewport.height / 2 - (y - this.y) * this.scale];
  }

  /** Follow and fit the flock again, and glide there. */
  followAgain() {
    this.following = true;
    this.fitting = true;
    this.everybody = false;
  }

  /** Glide to where all of the flock is seen, and keep it in sight. */
  showAll() {
    this.followAgain();
    this.everybody = true;
  }

  /** Whether any agent of the flock is in sight. */
  sees({ origin, positions, roles }, viewport) {
    const [w, h] = [viewport.width / 2 / this.scale, viewport.height / 2 / this.scale];
    const [x, y] = [this.x - origin[0], this.y - origin[1]];
    return roles.some(
      (role, i) => role !== OBSTACLE && Math.abs(positions[2 * i] - x) <= w && Math.abs(positions[2 * i + 1] - y) <= h,
    );
  }

  /** Give all cameras one scale: the one zoomed to last by hand, or else the smallest, at which every flock fits. */
  static share(cameras) {
    const byHand = cameras.filter((camera) => !camera.fitting).sort((a, b) => b.#zoomed - a.#zoomed);
    const scale = byHand[0]?.scale ?? Math.min(...cameras.map((camera) => camera.scale));
    for (const camera of cameras) {
      camera.scale = scale;
      camera.fitting = byHand.length === 0;
    }
  }
}
