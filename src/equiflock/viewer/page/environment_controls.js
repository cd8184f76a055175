/** Controls for the radio and the body, which take effect in flight. */

import { byId, make } from "./player/dom.js";
import { makeSlider, makeSliderRow } from "./form_rows.js";
import { formatName } from "./player/names.js";

/** Last position of a limit's slider that is a limit; beyond it there is none. */
const LAST_LIMIT_POSITION = 0.98;

const round = (number) => Number(number.toPrecision(2));
/** Return range and conversions of a linear slider from 0 to `high`; values have two significant digits. */
const makeLinearSlider = (high, step) => ({ high, step, toValue: round, toPosition: (value) => value });
/** Return range and conversions of a logarithmic slider from `low` to `high`; its right end means no limit (null). */
const makeLimitSlider = (low, high) => ({
  high: 1,
  step: 0.02,
  toValue: (position) =>
    position > LAST_LIMIT_POSITION ? null : round(low * (high / low) ** (position / LAST_LIMIT_POSITION)),
  toPosition: (value) => (value === null ? 1 : (LAST_LIMIT_POSITION * Math.log(value / low)) / Math.log(high / low)),
});

const SLIDERS = {
  packet_loss: {
    ...makeLinearSlider(0.9, 0.05),
    text: "Packet loss",
    format: (value) => `${Math.round(100 * value)}%`,
    help: "Share of messages lost, drawn independently for each link and step",
  },
  delay: {
    ...makeLinearSlider(10, 1),
    text: "Delay",
    format: (value) => (value === 1 ? "1 step" : `${value} steps`),
    help: "Time steps from sending to receiving",
  },
  noise: {
    ...makeLinearSlider(0.2, 0.01),
    text: "Noise",
    format: (value) => `${value} R`,
    help: "Standard deviation of measured relative positions, in R, and velocities, in R per second",
  },
  max_acceleration: {
    ...makeLimitSlider(1, 300),
    text: "Acceleration",
    format: (value) => (value === null ? "no limit" : `≤ ${value}`),
    help: "Maximum acceleration of a body; larger commands are scaled down",
  },
  max_turn_rate: {
    ...makeLimitSlider(0.5, 50),
    text: "Turn rate",
    format: (value) => (value === null ? "no limit" : `≤ ${value}/s`),
    help: "Maximum turn rate of a body, in radians per second",
  },
  lag: {
    ...makeLinearSlider(0.5, 0.02),
    text: "Lag",
    format: (value) => `${value} s`,
    help: "Time constant of the actuators: accelerations follow commands with a first-order lag",
  },
};
const RADIO_FIELDS = ["packet_loss", "delay", "noise"];
/** Defaults of body parameters; a body that lacks a parameter has its default. */
const BODY_DEFAULTS = { max_acceleration: null, max_turn_rate: null, lag: 0 };

/** Sliders for the radio and for the parameters of the selected body, and the menu of bodies. */
export class EnvironmentControls {
  #bodies;
  #onChange;
  #opened = false;

  /**
   * @param {{name: string, parameters: string[]}[]} bodies the bodies with the parameters that each has, default first
   * @param {function(object): void} onChange called with the fields of the environment that changed, repeatedly while a
   *   slider is dragged
   */
  constructor(bodies, onChange) {
    this.#bodies = bodies;
    this.#onChange = onChange;
    byId("radio").replaceChildren(...RADIO_FIELDS.map((name) => this.#makeRow(name)));
    byId("body-parameters").replaceChildren(...Object.keys(BODY_DEFAULTS).map((name) => this.#makeRow(name)));
    byId("body").replaceChildren(...bodies.map(({ name }) => new Option(formatName(name), name)));
    byId("body").onchange = () => this.#choose(byId("body").value);
    byId("environment").onsubmit = (event) => event.preventDefault();
  }

  /**
   * Show an environment, with the sliders of those parameters that its body has; `onChange` is not called. The controls
   * unfold the first time that an environment differs from the default.
   */
  show(environment) {
    byId("body").value = environment.body;
    const parameters = this.#parametersOf(environment.body);
    for (const [name, { toPosition, format }] of Object.entries(SLIDERS)) {
      byId(name).value = toPosition(environment[name]);
      byId(`${name}-value`).textContent = format(environment[name]);
      byId(`${name}-row`).hidden = name in BODY_DEFAULTS && !parameters.includes(name);
    }
    // Unfold the controls once if a link has values that differ from the defaults.
    const isDefaultBody = environment.body === this.#bodies[0].name;
    const isDefault = isDefaultBody && Object.keys(SLIDERS).every((name) => !environment[name]);
    if (!isDefault && !this.#opened) this.#opened = byId("environment-more").open = true;
  }

  /** Report another body; the parameters that it lacks go back to their defaults. */
  #choose(body) {
    const parameters = this.#parametersOf(body);
    const missing = Object.entries(BODY_DEFAULTS).filter(([name]) => !parameters.includes(name));
    this.#onChange({ body, ...Object.fromEntries(missing) });
  }

  /** Return the names of a body's parameters; none for an unknown body. */
  #parametersOf(body) {
    return this.#bodies.find(({ name }) => name === body)?.parameters ?? [];
  }

  /** Return the row of a field: label, slider and value. */
  #makeRow(name) {
    const { text, help, toValue } = SLIDERS[name];
    const slider = makeSlider(name, SLIDERS[name], (position) => this.#onChange({ [name]: toValue(position) }));
    const row = makeSliderRow(slider, text, help, make("output", { id: `${name}-value`, htmlFor: name }));
    row.id = `${name}-row`;
    return row;
  }
}
