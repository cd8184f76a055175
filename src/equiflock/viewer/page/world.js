/** The world that agents fly in: sliders for their radio and their bodies, which take effect at once. */

import { byId, make } from "./dom.js";
import { makeSlider, sliderRow } from "./rows.js";
import { written } from "./scenarios.js";

/** The last step of a slider that is logarithmic before the one that means no limit. */
const LAST_LIMIT = 0.98;

const round = (number) => Number(number.toPrecision(2));
/** A slider from 0 to the highest value in equal steps. */
const plain = (high, step) => ({ high, step, read: round, place: (value) => value });
/** A logarithmic slider for a limit, at the right end of which there is none: null. */
const limit = (low, high) => ({
  high: 1,
  step: 0.02,
  read: (place) => (place > LAST_LIMIT ? null : round(low * (high / low) ** (place / LAST_LIMIT))),
  place: (value) => (value === null ? 1 : (LAST_LIMIT * Math.log(value / low)) / Math.log(high / low)),
});

const NUMBERS = {
  loss: {
    ...plain(0.9, 0.05),
    text: "Loss",
    told: (value) => `${Math.round(100 * value)}%`,
    help: "The share of messages that are lost: each on each link at each step by itself",
  },
  delay: {
    ...plain(10, 1),
    text: "Delay",
    told: (value) => (value === 1 ? "1 step" : `${value} steps`),
    help: "Time steps from sending to hearing",
  },
  noise: {
    ...plain(0.2, 0.01),
    text: "Noise",
    told: (value) => `${value} R`,
    help: "The standard deviation of measured relative positions, in R, and velocities, in R per second",
  },
  max_acceleration: {
    ...limit(1, 300),
    text: "Acceleration",
    told: (value) => (value === null ? "no limit" : `≤ ${value}`),
    help: "The most that a body can accelerate; larger commands are scaled back",
  },
  max_turn_rate: {
    ...limit(0.5, 50),
    text: "Turn rate",
    told: (value) => (value === null ? "no limit" : `≤ ${value}/s`),
    help: "The most that a body can turn, in radians per second",
  },
  lag: {
    ...plain(0.5, 0.02),
    text: "Lag",
    told: (value) => `${value} s`,
    help: "The time constant of actuators, by which accelerations follow commands",
  },
};
const RADIO = ["loss", "delay", "noise"];
/** Numbers of bodies that mean nothing out of the ordinary; a body without a number has this. */
const USUAL = { max_acceleration: null, max_turn_rate: null, lag: 0 };

export class WorldControls {
  #bodies;
  #onChange;
  #opened = false;

  /**
   * @param {{name: string, numbers: string[]}[]} bodies those that there are, each with the numbers that it has
   * @param {function(object): void} onChange called with the fields of the world that were changed
   */
  constructor(bodies, onChange) {
    this.#bodies = bodies;
    this.#onChange = onChange;
    byId("radio").replaceChildren(...RADIO.map((name) => this.#row(name)));
    byId("body-numbers").replaceChildren(...Object.keys(USUAL).map((name) => this.#row(name)));
    byId("body").replaceChildren(...bodies.map(({ name }) => new Option(written(name), name)));
    byId("body").onchange = () => this.#choose(byId("body").value);
    byId("world").onsubmit = (event) => event.preventDefault();
  }

  /** Show a world. */
  show(world) {
    byId("body").value = world.body;
    const own = this.#numbersOf(world.body);
    for (const [name, { place, told }] of Object.entries(NUMBERS)) {
      byId(name).value = place(world[name]);
      byId(`${name}-told`).textContent = told(world[name]);
      byId(`${name}-row`).hidden = name in USUAL && !own.includes(name);
    }
    // What is out of the ordinary is not hidden from whoever opens a link to it.
    const usual = world.body === this.#bodies[0].name && Object.keys(NUMBERS).every((name) => !world[name]);
    if (!usual && !this.#opened) this.#opened = byId("world-more").open = true;
  }

  #choose(body) {
    const own = this.#numbersOf(body);
    const without = Object.entries(USUAL).filter(([name]) => !own.includes(name));
    this.#onChange({ body, ...Object.fromEntries(without) });
  }

  #numbersOf(body) {
    return this.#bodies.find(({ name }) => name === body)?.numbers ?? [];
  }

  #row(name) {
    const { text, help, read } = NUMBERS[name];
    const slider = makeSlider(name, NUMBERS[name], (place) => this.#onChange({ [name]: read(place) }));
    const made = sliderRow(slider, text, help, make("output", { id: `${name}-told`, htmlFor: name }));
    made.id = `${name}-row`;
    return made;
  }
}
