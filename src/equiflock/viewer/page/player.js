/** Playback timing: which moment of a flight to show, and when to request the next. The page sets the pace. */

/** Maximum real time that one picture may advance a flight, in seconds. */
const MAX_PICTURE_INTERVAL = 0.1;
const MAX_STEPS = 1000;
/** Tolerance of time comparisons: times are sums of time steps. */
const TIME_TOLERANCE = 1e-9;

/** Source of live frames: requests a number of further time steps. */
export class LiveSteps {
  constructor(timeStep) {
    this.timeStep = timeStep;
  }

  /** Return the simulated seconds from a frame to the next. */
  timeToNextFrame() {
    return this.timeStep;
  }

  /** Return the request that takes the flight from the newest frame to `targetTime`, or null if it is there. */
  request(newest, targetTime) {
    const steps = Math.floor((targetTime - newest.time) / this.timeStep + TIME_TOLERANCE);
    return steps > 0 ? { command: "advance", steps: Math.min(steps, MAX_STEPS) } : null;
  }

  ended() {
    return false;
  }
}

/** Source of saved frames: requests a frame by its index. */
export class SavedFrames {
  constructor({ times, time_step: timeStep }) {
    this.times = times;
    this.timeStep = timeStep;
  }

  timeToNextFrame(frame) {
    return this.times[Math.min(frame.step + 1, this.times.length - 1)] - frame.time;
  }

  request(newest, targetTime) {
    let next = newest.step;
    while (next + 1 < this.times.length && this.times[next + 1] <= targetTime + TIME_TOLERANCE) next += 1;
    return next > newest.step ? { command: "seek", frame: next } : null;
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
  /** Simulated time to show now, in seconds. */
  #clock = 0;
  /** Running mean of the simulated time between two pictures, in seconds. */
  #timePerPicture = 0;
  /** Frames that are ahead of the clock. */
  #queued = [];
  #source = new LiveSteps(0.01);

  /** Start another flight, from LiveSteps or SavedFrames. */
  begin(source) {
    this.#source = source;
    this.clear();
  }

  /** Show nothing until the next frame arrives. */
  clear() {
    this.frame = null;
    this.#queued = [];
  }

  /** Add a frame from the server; return the frames that are now due, the last of which is shown. */
  receive(frame) {
    this.#queued.push(frame);
    if (!this.frame || !this.playing) this.#clock = frame.time;
    return this.#takeDueFrames();
  }

  /** Advance the clock by real seconds until the next picture; return the frames that are now due. */
  advance(seconds) {
    if (!this.playing) return [];
    const passed = Math.min(seconds, MAX_PICTURE_INTERVAL) * this.speed;
    this.#timePerPicture += 0.2 * (passed - this.#timePerPicture);
    // Limit the lead over the newest frame: with a slow server time passes slowly, without jumps.
    const maxLead = this.#source.timeToNextFrame(this.#newest) + MAX_PICTURE_INTERVAL * this.speed;
    this.#clock = Math.min(this.#clock + passed, this.#newest.time + maxLead);
    return this.#takeDueFrames();
  }

  /** Play or pause, at the newest frame; return the frames that are now due. */
  play(playing) {
    this.playing = playing;
    if (!this.frame) return [];
    this.#clock = this.#newest.time;
    return this.#takeDueFrames();
  }

  /** The next request, or null. It aims two pictures ahead, to cover the round trip to the server. */
  get request() {
    return this.playing && this.frame
      ? this.#source.request(this.#newest, this.#clock + 2 * this.#timePerPicture)
      : null;
  }

  /** Whether the last frame is shown. */
  get ended() {
    return this.frame !== null && this.#source.ended(this.frame);
  }

  /** Simulated seconds from the frame to the picture; within a step, agents are extrapolated as the simulation does. */
  get ahead() {
    return this.ended ? 0 : Math.min(Math.max(this.#clock - this.frame.time, 0), this.#source.timeStep);
  }

  get #newest() {
    return this.#queued.at(-1) ?? this.frame;
  }

  #takeDueFrames() {
    const due = [];
    while (this.#queued.length && this.#queued[0].time <= this.#clock + TIME_TOLERANCE) due.push(this.#queued.shift());
    this.frame = due.at(-1) ?? this.frame;
    return due;
  }
}
