/** The camera of a panel: centre and scale of a view that follows the flock unless the user moves it. */

import { OBSTACLE, placeAgent } from "./frames.js";
import { reducedMotion } from "./motion.js";

const SAMPLE_SIZE = 400; // agents sampled to locate the flock
const MARGIN = 1.25; // extent of the view over that of nine tenths of the flock
const STRAGGLER_MARGIN = 1.12; // extent of the view over that of the whole flock ..
const MAX_STRAGGLER_FACTOR = 1.6; // .. up to this multiple of that of nine tenths
const MAX_SPREAD_FACTOR = 2.5; // maximum extent over the initial one: a flock that bursts is not zoomed out for ..
const MAX_PLACES_FACTOR = 1.5; // .. unless it spreads to places: maximum extent over the distance of the farthest one
const MIN_EXTENT = 0.75; // minimum extent of a fitted view from its centre, in communication radii R
const USUAL_EXTENT = 2; // the least extent, in R, by which the limits of spread and landmarks are measured
// Landmarks, such as obstacles, are shown if they are near the flock or a little farther ahead of it. Numbers are
// multiples of the flock's extent.
const REACH = 0.3; // from the flock's edge, on all sides
const REACH_AHEAD = 0.9; // added in the direction in which the whole flock flies
const LANDMARK_MARGIN = 0.08;
const MAX_LANDMARK_EXTENT = 2.5; // from the flock's centre: landmarks do not make the flock tiny
const AIM_REACH = 3; // as REACH, for goals and gates, to which the flock flies
const MAX_AIM_EXTENT = 3.5;
const EASE_SECONDS = 0.45; // time constant of the easing
const AGENT_EXTENT = 3; // extent of the view of one agent, in communication radii
const MIN_SCALE = 0.05; // css pixels per world unit
const MAX_SCALE = 600;

const clampScale = (scale) => Math.min(Math.max(scale, MIN_SCALE), MAX_SCALE);

/**
 * Return the value below which a share (0 to 1) of the values lies, without interpolation; undefined if there are none.
 */
function quantile(values, share) {
  return Float64Array.from(values).sort()[Math.floor(share * (values.length - 1))];
}

/** Return the disks of a panel as landmarks. */
function listDisks({ disks, origin }) {
  return Array.from({ length: disks.length / 3 }, (_, i) => {
    const [x, y, radius] = disks.subarray(3 * i);
    return { x: origin[0] + x, y: origin[1] + y, radius };
  });
}

/** Centre and scale of one panel's view. World coordinates have y up, screen coordinates y down. */
export class Camera {
  static #zoomCount = 0;

  /** World coordinates of the centre of the view. */
  x = 0;
  y = 0;
  /** Css pixels per world unit. */
  scale = 100;
  /** Whether the view stays centred on the flock; panning ends it. */
  following = true;
  /** Whether to follow and fit every agent, including stragglers, instead of most of the flock. */
  fitsAll = false;
  /** Index of the agent to follow in place of the flock, or null; undefined while its index is unknown. */
  agent = null;
  /** Whether a pointer is pressed: the camera then stands still, so that the target stays under the pointer. */
  isHeld = false;
  /** Whether the scale fits the flock while following; zooming ends it. */
  fitting = true;

  #commRadius;
  #agents = 0; // agent count of the last sample; samples of different flocks are not compared
  #place = null; // of the followed agent at the last picture
  #xs = []; // the sample, in world coordinates
  #ys = [];
  #middle = null; // of the flock; null before the first sample
  #halfSize = [1, 1]; // of the view, in world units
  #firstExtent = 0; // initial extent; 0 before the first sample
  #skipEasing = true; // the next easing step arrives at once
  #lastZoom = 0; // value of the zoom counter at the last manual zoom

  /** @param {number} commRadius communication radius R; a fitted view extends at least MIN_EXTENT R from its centre */
  constructor(commRadius = 1) {
    this.#commRadius = commRadius;
  }

  /**
   * Update centre and size of the view, and move along with the flock if following and not held. Call it for every
   * picture, with the simulated seconds `ahead` from the frame to it. Obstacle agents are ignored, and failed ones
   * unless all have failed. Near or ahead of the flock, disks and other `landmarks`, a list of {x, y, radius, moves,
   * isAim} in world coordinates, are in the view, too; those that are aims of the flock also at a distance, and those
   * that move with the flock always: they are places to which it may spread.
   *
   * The centre is a median, which a few stragglers do not move. It jitters as agents overtake each other, so the camera
   * moves by the median displacement of the sample, which is smooth, and `easeToFlock` removes the remaining offset.
   */
  trackFlock(panel, ahead, landmarks = []) {
    const { origin, positions, velocities, accelerations, roles, conditions } = panel;
    if (this.agent !== null) {
      if (this.agent < roles.length) this.#trackAgent(placeAgent(panel, this.agent, ahead));
      return;
    }
    // Failed agents are ignored, unless all have failed.
    const works = conditions.some((condition, i) => !condition && roles[i] !== OBSTACLE);
    const stride = Math.max(1, Math.ceil(roles.length / SAMPLE_SIZE));
    const at = (k) => positions[k] + (velocities[k] + (accelerations[k] * ahead) / 2) * ahead;
    const xs = [];
    const ys = [];
    const sum = { x: 0, y: 0, speed: 0 }; // of velocities
    for (let i = 0; i < roles.length; i += stride) {
      if (roles[i] === OBSTACLE || (works && conditions[i])) continue;
      xs.push(origin[0] + at(2 * i));
      ys.push(origin[1] + at(2 * i + 1));
      const [vx, vy] = velocities.subarray(2 * i);
      sum.x += vx;
      sum.y += vy;
      sum.speed += Math.hypot(vx, vy);
    }
    if (xs.length === 0) return;

    if (this.following && !this.isHeld && this.#agents === roles.length && this.#xs.length === xs.length) {
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
    if (this.fitsAll) {
      this.#trackAll(panel, at);
      return;
    }
    const [x, y] = [quantile(xs, 0.5), quantile(ys, 0.5)];
    const distances = xs.map((_, i) => Math.hypot(xs[i] - x, ys[i] - y));
    const most = quantile(distances, 0.9);
    const all = Math.min(STRAGGLER_MARGIN * quantile(distances, 1), MAX_STRAGGLER_FACTOR * most);
    const extent = Math.max(MARGIN * most, all, MIN_EXTENT * this.#commRadius);
    this.#firstExtent ||= Math.max(extent, USUAL_EXTENT * this.#commRadius);
    const farthest = landmarks.reduce(
      (far, mark) => Math.max(far, mark.moves ? Math.hypot(mark.x - x, mark.y - y) : 0),
      0,
    );
    const limit = Math.max(MAX_SPREAD_FACTOR * this.#firstExtent, MAX_PLACES_FACTOR * farthest);
    const flock = { x, y, radius: Math.min(extent, limit) };
    const heading = sum.speed ? [sum.x / sum.speed, sum.y / sum.speed] : [0, 0]; // of length 1 if all velocities agree
    this.#frame(flock, heading, [...listDisks(panel), ...landmarks]);
  }

  /** Move along with the followed agent, given its place, and set centre and size of the view. */
  #trackAgent(place) {
    if (this.following && !this.isHeld && this.#place) {
      this.x += place[0] - this.#place[0];
      this.y += place[1] - this.#place[1];
    }
    this.#place = this.#middle = place;
    this.#halfSize = [AGENT_EXTENT * this.#commRadius, AGENT_EXTENT * this.#commRadius];
    this.#agents = 0; // the sample of the flock is outdated
  }

  /** Set centre and size of the view to fit the flock's circle {x, y, radius} and the landmarks near or ahead of it. */
  #frame({ x, y, radius: extent }, heading, landmarks) {
    const [low, high] = [
      [x - extent, y - extent],
      [x + extent, y + extent],
    ];
    const unit = Math.max(extent, USUAL_EXTENT * this.#commRadius);
    for (const mark of landmarks) {
      const offset = [mark.x - x, mark.y - y];
      const distance = Math.hypot(...offset);
      const direction = distance ? (offset[0] * heading[0] + offset[1] * heading[1]) / distance : 0;
      const reach = unit * (mark.isAim ? AIM_REACH : REACH + REACH_AHEAD * Math.max(direction, 0));
      const most = mark.moves ? Infinity : unit * (mark.isAim ? MAX_AIM_EXTENT : MAX_LANDMARK_EXTENT);
      const gap = Math.max(distance - mark.radius - extent, 0);
      // From 1 to 0 over the farther half of the reach, so that the view does not jump.
      const weight = mark.moves ? 1 : Math.min(Math.max(2 - (2 * gap) / reach, 0), 1);
      const half = mark.radius + LANDMARK_MARGIN * unit;
      for (let k = 0; k < 2; k++) {
        const [first, last] = [Math.max(offset[k] - half, -most), Math.min(offset[k] + half, most)];
        const centre = [x, y][k];
        low[k] = Math.min(low[k], centre - extent + weight * (first + extent));
        high[k] = Math.max(high[k], centre + extent + weight * (last - extent));
      }
    }
    this.#middle = [0, 1].map((k) => (low[k] + high[k]) / 2);
    this.#halfSize = [0, 1].map((k) => (high[k] - low[k]) / 2);
  }

  /** Set centre and size of the view to fit every agent, failed ones included; `at(k)` is coordinate k relative to the origin. */
  #trackAll({ origin, roles }, at) {
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
    this.#halfSize = [0, 1].map(() => Math.max(MARGIN * half, MIN_EXTENT * this.#commRadius));
  }

  /**
   * Ease towards the flock for `seconds` of real time, and towards the scale that fits it unless the user has zoomed.
   * The first call arrives at once, and every call if the system asks for less motion. Nothing changes before `trackFlock`, or if the camera does not follow or is held.
   * @param {number[]} covered css pixels above and below the flock that titles and buttons may cover
   */
  easeToFlock(seconds, viewport, [above, below] = [0, 0]) {
    if (!this.#middle || !this.following || (this.isHeld && !this.#skipEasing)) return;
    const step = this.#skipEasing || reducedMotion.matches ? 1 : 1 - Math.exp(-seconds / EASE_SECONDS);
    this.#skipEasing = false;
    if (this.fitting) {
      const height = Math.max(viewport.height - above - below, 0.6 * viewport.height);
      const fit = clampScale(Math.min(viewport.width / (2 * this.#halfSize[0]), height / (2 * this.#halfSize[1])));
      this.scale *= (fit / this.scale) ** step;
    }
    this.x += step * (this.#middle[0] - this.x);
    this.y += step * (this.#middle[1] + (above - below) / 2 / this.scale - this.y);
  }

  /** Drag the world by css pixels, y down; the camera then no longer follows the flock. */
  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y += dy / this.scale;
    this.following = false;
  }

  /**
   * Multiply the scale, within its bounds; the point (px, py), in css pixels from the viewport's top left, stays in
   * place. The scale then no longer fits the flock; the camera keeps following it.
   */
  zoom(factor, px, py, viewport) {
    const [x, y] = this.toWorld(px, py, viewport);
    const before = this.scale;
    this.scale = clampScale(before * factor);
    this.x = x + (this.x - x) * (before / this.scale);
    this.y = y + (this.y - y) * (before / this.scale);
    this.fitting = false;
    this.#lastZoom = ++Camera.#zoomCount;
  }

  /** @returns {[number, number]} world coordinates of a point in css pixels from the viewport's top left */
  toWorld(px, py, viewport) {
    return [this.x + (px - viewport.width / 2) / this.scale, this.y - (py - viewport.height / 2) / this.scale];
  }

  /** @returns {[number, number]} css pixels from the viewport's top left of a point in world coordinates */
  toScreen(x, y, viewport) {
    return [viewport.width / 2 + (x - this.x) * this.scale, viewport.height / 2 - (y - this.y) * this.scale];
  }

  /** Follow one agent, and show what is around it, by easing. */
  followAgent(agent) {
    this.resumeFollowing();
    this.agent = agent;
  }

  /** Follow and fit most of the flock again, by easing. */
  resumeFollowing() {
    this.agent = this.#place = null;
    this.following = true;
    this.fitting = true;
    this.fitsAll = false;
  }

  /** Follow and fit every agent, including stragglers and failed ones, by easing. */
  showAll() {
    this.resumeFollowing();
    this.fitsAll = true;
  }

  /** Return whether any agent of a panel, except obstacle agents, is in the viewport at the frame's time. */
  isFlockVisible({ origin, positions, roles }, viewport) {
    const [w, h] = [viewport.width / 2 / this.scale, viewport.height / 2 / this.scale];
    const [x, y] = [this.x - origin[0], this.y - origin[1]];
    return roles.some(
      (role, i) => role !== OBSTACLE && Math.abs(positions[2 * i] - x) <= w && Math.abs(positions[2 * i + 1] - y) <= h,
    );
  }

  /**
   * Give all cameras one scale: that of the last manual zoom or, if all fit their flocks, the smallest, which fits
   * every flock. If one was zoomed manually, none fits its flock any more.
   */
  static shareScale(cameras) {
    const zoomed = cameras.filter((camera) => !camera.fitting).sort((a, b) => b.#lastZoom - a.#lastZoom);
    const scale = zoomed[0]?.scale ?? Math.min(...cameras.map((camera) => camera.scale));
    for (const camera of cameras) {
      camera.scale = scale;
      camera.fitting = zoomed.length === 0;
    }
  }
}
