/** The position of playback, which several players can share. */

/** Maximum real time that one picture may advance a flight, in seconds. */
const MAX_PICTURE_INTERVAL = 0.1;

/** A position in flights of up to `duration` seconds, and whether it advances. */
export class Timeline {
  static #groups = new Map();

  /** Current time, in seconds. */
  time = 0;
  /** Simulated seconds per second. */
  speed = 1;
  /** Duration of the longest flight, in seconds. */
  duration = 0;
  #playing = false;

  /** Return the timeline of a group by its name, which players share; a new one without a name. */
  static of(group) {
    if (!group) return new Timeline();
    if (!Timeline.#groups.has(group)) Timeline.#groups.set(group, new Timeline());
    return Timeline.#groups.get(group);
  }

  /** Let a flight of `duration` seconds join, at a speed unless others have joined before. */
  join(duration, speed) {
    if (this.duration === 0) this.speed = speed;
    this.duration = Math.max(this.duration, duration);
  }

  get playing() {
    return this.#playing;
  }

  /** Play from the current time, or from the start if the flights have ended; or pause. */
  set playing(playing) {
    if (playing && this.time >= this.duration) this.time = 0;
    this.#playing = playing;
  }

  /** Pause at a time, in seconds; it is clamped to the flights. */
  seek(time) {
    this.#playing = false;
    this.time = Math.min(Math.max(time, 0), this.duration);
  }

  /** Advance by real seconds if playing, at most MAX_PICTURE_INTERVAL; pause at the end. */
  advance(seconds) {
    if (!this.#playing) return;
    this.time += Math.min(seconds, MAX_PICTURE_INTERVAL) * this.speed;
    if (this.time >= this.duration) this.seek(this.duration);
  }
}
