/** Metrics of a flight over time. */

const MAX_POINTS = 1200;

/** Metrics in the order of a panel's `metricValues`. */
export const METRICS = [
  { name: "Velocity variance", log: true },
  { name: "Components", integer: true },
  { name: "Min. separation" },
  { name: "Mean acceleration", log: true },
  { name: "RMS acceleration", log: true },
  { name: "Peak acceleration", log: true },
];

/** Metrics of a flight so far: times, and rows[time][panel][metric]. At MAX_POINTS every other one is dropped. */
export class History {
  constructor() {
    this.clear();
  }

  /** Forget all metrics and the duration. */
  clear() {
    /** Duration of a saved flight, in seconds; null for a live one. */
    this.duration = null;
    this.times = [];
    this.rows = [];
  }

  /** Append metricValues[panel][metric] at a time in seconds; replace the last ones if they have the same time. */
  add(time, metricValues) {
    if (this.times.at(-1) === time) {
      this.times.pop();
      this.rows.pop();
    }
    if (this.times.length >= MAX_POINTS) {
      const even = (_, i) => i % 2 === 0;
      [this.times, this.rows] = [this.times.filter(even), this.rows.filter(even)];
    }
    this.times.push(time);
    this.rows.push(metricValues);
  }

  /** Return the index of the recorded time that is nearest to a time; -1 without any. */
  findNearest(time) {
    const { times } = this;
    if (!times.length) return -1;
    let low = 0;
    let high = times.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
  }
}
