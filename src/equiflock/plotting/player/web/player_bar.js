/** The bar of a player: play button, time, speed and display options. */

import { make } from "./dom.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const ICONS = {
  play: "M8 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  theme: "M12 4a8 8 0 1 0 0 16a8 8 0 0 0 0-16zM12 4a8 8 0 0 1 0 16z",
};
const SVG = "http://www.w3.org/2000/svg";

/** Shows a timeline and the display options, and changes them. */
export class PlayerBar {
  element;
  #timeline;
  #look;
  #play = makeIconButton("play");
  #slider = make("input", { type: "range", min: 0, ariaLabel: "Time" });
  #time = make("output");
  #speed = make("select", { ariaLabel: "Speed", title: "Simulated seconds per second" });
  #toggles;

  /**
   * @param {import("./timeline.js").Timeline} timeline
   * @param {{trails: boolean, edges: boolean}} look changed by the buttons
   * @param {{times: number[], links: boolean}} content times of the frames, and whether they have links
   * @param {object} on callbacks: `play(playing)`, `redraw()` and `changeTheme()`
   */
  constructor(timeline, look, { times, links }, on) {
    this.#timeline = timeline;
    this.#look = look;
    this.#slider.max = times.at(-1);
    this.#slider.step = times.length > 1 ? times.at(-1) / (times.length - 1) : 1;
    const speeds = [...new Set([...SPEEDS, timeline.speed])].sort((a, b) => a - b);
    this.#speed.append(...speeds.map((speed) => new Option(`${speed}×`, speed)));
    const toggle = (key, text, title) => {
      const button = make("button", { type: "button", title }, text);
      button.onclick = () => {
        look[key] = !look[key];
        on.redraw();
        this.show();
      };
      return [key, button];
    };
    this.#toggles = [toggle("trails", "Trails", "Recent paths of the agents")];
    if (links) this.#toggles.push(toggle("edges", "Links", "Communication graph: who receives from whom"));
    const theme = makeIconButton("theme");
    theme.title = theme.ariaLabel = "Light or dark theme";
    this.#play.onclick = () => on.play(!timeline.playing);
    this.#slider.oninput = () => timeline.seek(this.#slider.valueAsNumber);
    this.#speed.onchange = () => (timeline.speed = Number(this.#speed.value));
    theme.onclick = on.changeTheme;
    const options = make("div", { className: "options" }, this.#speed);
    options.append(...this.#toggles.map(([, button]) => button), theme);
    this.element = make("div", { className: "bar" }, this.#play, this.#slider, this.#time, options);
    this.show();
  }

  /** Show the timeline and the options as they are. */
  show() {
    const { time, duration, playing, speed } = this.#timeline;
    const action = playing ? "Pause" : "Play";
    if (this.#play.title !== action) {
      this.#play.title = this.#play.ariaLabel = action;
      this.#play.classList.toggle("playing", playing);
      setIcon(this.#play, playing ? "pause" : "play");
    }
    const text = `${time.toFixed(2)} s`;
    if (this.#time.textContent !== `${time.toFixed(2)} / ${duration.toFixed(2)} s`) {
      this.#slider.value = time;
      this.#slider.setAttribute("aria-valuetext", text);
      this.#time.textContent = `${time.toFixed(2)} / ${duration.toFixed(2)} s`;
    }
    this.#speed.value = speed;
    for (const [key, button] of this.#toggles) button.setAttribute("aria-pressed", this.#look[key]);
  }
}

/** Return a button with an icon. */
function makeIconButton(icon) {
  const button = make("button", { type: "button", className: icon });
  setIcon(button, icon);
  return button;
}

/** Draw an icon on a button. */
function setIcon(button, icon) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("aria-hidden", "true");
  const path = picture.appendChild(document.createElementNS(SVG, "path"));
  path.setAttribute("d", ICONS[icon]);
  button.replaceChildren(picture);
}
