/** Playback timing: which moment of a flight to show, and when to request the next. The page sets the pace. */

/** Maximum real time that one picture may advance a flight, in seconds. */
const MAX_PICTURE_INTERVAL = 0.1;
const MAX_STEPS = 1000;
/** Tolerance of time comparisons: times are sums of time steps. */
const TIME_TOLERANCE = 1e-9;

/** Source of live frames: requests a number of further time steps; `timeStep` is in seconds. */
export class LiveSteps {
  constructor(timeStep) {
    this.timeStep = timeStep;
  }

  /** Return the simulated seconds from a frame to the next: one time step. */
  timeToNextFrame() {
    return this.timeStep;
  }

  /**
   * Return the request for the whole steps, at most MAX_STEPS, from the newest frame to `targetTime` (simulated
   * seconds), or null if that is less than a step.
   */
  request(newest, targetTime) {
    const steps = Math.floor((targetTime - newest.time) / this.timeStep + TIME_TOLERANCE);
    return steps > 0 ? { command: "advance", steps: Math.min(steps, MAX_STEPS) } : null;
  }

  /** Return false: a live flight has no last frame. */
  ended() {
    return false;
  }
}

/** Source of saved frames: requests a frame by its index. */
export class SavedFrames {
  constructor({ times }) {
    this.times = times;
  }

  /** Return the simulated seconds from a frame to the next; 0 for the last. */
  timeToNextFrame(frame) {
    return this.times[Math.min(frame.step + 1, this.times.length - 1)] - frame.time;
  }

  /** Return the request for the last frame up to `targetTime`, or null if the newest is that or later. */
  request(newest, targetTime) {
    let next = newest.step;
    while (next + 1 < this.times.length && this.times[next + 1] <= targetTime + TIME_TOLERANCE) next += 1;
    return next > newest.step ? { command: "seek", frame: next } : null;
  }

  /** Return whether a frame is the last. */
  ended(frame) {
    return frame.step === this.times.length - 1;
  }
}

/** The clock of the flight, with a queue of frames ahead of it. Frames are due when the clock reaches their times. */
export class FlightClock {
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

  /** Forget all frames, and take frames of another flight from LiveSteps or SavedFrames. */
  begin(source) {
    this.#source = source;
    this.clear();
  }

  /** Forget all frames: nothing is shown until the next one arrives. */
  clear() {
    this.frame = null;
    this.#queued = [];
  }

  /** Queue a frame; return the frames that are now due, the last of which is shown. If paused, it is due at once. */
  receive(frame) {
    this.#queued.push(frame);
    if (!this.frame || !this.playing) this.#clock = frame.time;
    return this.#takeDueFrames();
  }

  /**
   * Advance the clock by real seconds, at most MAX_PICTURE_INTERVAL, times the speed; not if paused. If the server is
   * slow, the clock waits for it. Call it only while a frame is shown. Return the frames that are now due.
   */
  advance(seconds) {
    if (!this.playing) return [];
    const passed = Math.min(seconds, MAX_PICTURE_INTERVAL) * this.speed;
    this.#timePerPicture += 0.2 * (passed - this.#timePerPicture);
    // Limit the lead over the newest frame: with a slow server time passes slowly, without jumps.
    const maxLead = this.#source.timeToNextFrame(this.#newest) + MAX_PICTURE_INTERVAL * this.speed;
    this.#clock = Math.min(this.#clock + passed, this.#newest.time + maxLead);
    return this.#takeDueFrames();
  }

  /** Play or pause, and set the clock to the newest frame; return the frames that are now due. */
  play(playing) {
    this.playing = playing;
    if (!this.frame) return [];
    this.#clock = this.#newest.time;
    return this.#takeDueFrames();
  }

  /**
   * The request for the next frame; null if paused or none is needed. It aims two pictures ahead, for the round trip.
   */
  get request() {
    return this.playing && this.frame
      ? this.#source.request(this.#newest, this.#clock + 2 * this.#timePerPicture)
      : null;
  }

  /** Whether the last frame of a saved flight is shown. */
  get ended() {
    return this.frame !== null && this.#source.ended(this.frame);
  }

  /**
   * Simulated seconds, at most those to the next frame, by which agents are extrapolated from the frame; 0 at the last.
   */
  get ahead() {
    const most = this.#source.timeToNextFrame(this.frame);
    return this.ended ? 0 : Math.min(Math.max(this.#clock - this.frame.time, 0), most);
  }

  get #newest() {
    return this.#queued.at(-1) ?? this.frame;
  }

  /** Remove the due frames from the queue, and return them; the last one becomes `frame`. */
  #takeDueFrames() {
    const due = [];
    while (this.#queued.length && this.#queued[0].time <= this.#clock + TIME_TOLERANCE) due.push(this.#queued.shift());
    this.frame = due.at(-1) ?? this.frame;
    return due;
  }
}
