/** When to show which moment of a flight, and when to ask for the next: the page sets the pace, not the server. */

/** The longest time between two pictures that a flight takes part in, in seconds. */
const LONGEST_PAUSE = 0.1;
const MOST_STEPS = 1000;
/** Times are sums of time steps. */
const ROUNDING = 1e-9;

/** Time steps of a live flight: `ask` for so many more. */
export class LiveSteps {
  constructor(timeStep) {
    this.timeStep = timeStep;
  }

  after() {
    return this.timeStep;
  }

  request(newest, soon) {
    const steps = Math.floor((soon - newest.time) / this.timeStep + ROUNDING);
    return steps > 0 ? { do: "advance", steps: Math.min(steps, MOST_STEPS) } : null;
  }

  ended() {
    return false;
  }
}

/** Frames of a saved flight: `ask` for one of them. */
export class SavedFrames {
  constructor({ times, time_step: timeStep }) {
    this.times = times;
    this.timeStep = timeStep;
  }

  after(frame) {
    return this.times[Math.min(frame.step + 1, this.times.length - 1)] - frame.time;
  }

  request(newest, soon) {
    let next = newest.step;
    while (next + 1 < this.times.length && this.times[next + 1] <= soon + ROUNDING) next += 1;
    return next > newest.step ? { do: "seek", frame: next } : null;
  }

  ended(frame) {
    return frame.step === this.times.length - 1;
  }
}

export class Player {
  /** The frame that is shown. */
  frame = null;
  playing = true;
  /** Simulated seconds per second. */
  speed = 1;
  /** Where the flight shall be now, in seconds. */
  #clock = 0;
  /** How much of it passes between two pictures. */
  #pace = 0;
  /** Frames that came before their time. */
  #early = [];
  #source = new LiveSteps(0.01);

  /** Begin another flight, from LiveSteps or SavedFrames. */
  begin(source) {
    this.#source = source;
    this.forget();
  }

  /** Show nothing until another frame comes. */
  forget() {
    this.frame = null;
    this.#early = [];
  }

  /** Take a frame from the server; returns those whose time has come, the last of which is shown now. */
  take(frame) {
    this.#early.push(frame);
    if (!this.frame || !this.playing) this.#clock = frame.time;
    return this.#due();
  }

  /** Let time pass until the next picture; returns the frames whose time has come. */
  advance(seconds) {
    if (!this.playing) return [];
    const passed = Math.min(seconds, LONGEST_PAUSE) * this.speed;
    this.#pace += 0.2 * (passed - this.#pace);
    // A slow server makes time pass slowly, not in leaps.
    const most = this.#source.after(this.#newest) + LONGEST_PAUSE * this.speed;
    this.#clock = Math.min(this.#clock + passed, this.#newest.time + most);
    return this.#due();
  }

  /** Go on, or stop where the server is; returns the frames whose time has come with it. */
  play(playing) {
    this.playing = playing;
    if (!this.frame) return [];
    this.#clock = this.#newest.time;
    return this.#due();
  }

  /** What to ask for: the moment that will be shown in two pictures' time, as the way there and back takes time, too. */
  get request() {
    return this.playing && this.frame ? this.#source.request(this.#newest, this.#clock + 2 * this.#pace) : null;
  }

  /** Whether the last frame is shown. */
  get ended() {
    return this.frame !== null && this.#source.ended(this.frame);
  }

  /** How far the picture is ahead of the frame: agents move on within a step as they do in the simulation. */
  get ahead() {
    return this.ended ? 0 : Math.min(Math.max(this.#clock - this.frame.time, 0), this.#source.timeStep);
  }

  get #newest() {
    return this.#early.at(-1) ?? this.frame;
  }

  #due() {
    const due = [];
    while (this.#early.length && this.#early[0].time <= this.#clock + ROUNDING) due.push(this.#early.shift());
    this.frame = due.at(-1) ?? this.frame;
    return due;
  }
}
