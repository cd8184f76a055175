/** Plays saved flights without a server: picture, time bar and curves in an element of any page. */

import { make } from "./dom.js";
import { formatControllerName } from "./names.js";
import { reducedMotion } from "./motion.js";
import { addToLoop, setThemeOfAll } from "./player_loop.js";
import { PlayerBar } from "./player_bar.js";
import { Recording } from "./recording.js";
import { Screen } from "./screen.js";
import { Timeline } from "./timeline.js";

const LIGHT = "(prefers-color-scheme: light)";

/** A player of one or several flights in lockstep. It plays when it is first seen, unless motion should be reduced. */
export class Player {
  /** The parent of picture, bar and curves; the loop observes it. */
  element;
  look;
  #host;
  /** The flights, until their frames are unpacked. */
  #content;
  #timeline;
  #bar = null;
  #picture = make("div", { className: "picture" });
  #plots = make("div", { className: "plots", role: "group", ariaLabel: "Curves" });
  #notes = make("p", { className: "notes" });
  /** A copy of the last picture, for the time without WebGL context. */
  #still = make("canvas", { className: "scene", hidden: true });
  #recording = null;
  #screen = null;
  #hasFailed = false;
  /** While the page is printed: the theme on the screen, and whether the picture is live; else null. */
  #onScreen = null;
  /** Whether the player may start by itself. */
  #startsWhenSeen = true;

  /**
   * @param {HTMLElement} host where to build the player
   * @param {object} content flights, times, curves and frames, as embedding.py describes them
   * @param {CSSStyleSheet} styles for the player, and for it only
   */
  constructor(host, content, styles) {
    this.#host = host;
    this.element = make("div", { className: "player" }, this.#picture, this.#plots, this.#notes);
    this.#prepare(content);
    const root = host.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [styles];
    root.append(this.element);
    host.setAttribute("role", "region");
    this.#picture.onclick = ({ target }) => target.closest("button") ?? this.#play(!this.#timeline.playing);
    this.element.onkeydown = (event) => this.#press(event);
    this.theme = matchMedia(LIGHT).matches ? "light" : "dark";
    addToLoop(this);
  }

  /** Show other flights instead, from their start. */
  load(content) {
    this.#prepare(content);
    if (this.#screen && !this.#hasFailed) this.#unpack().catch((error) => this.#fail(error));
  }

  /** Set up everything but the picture for flights: their timeline, the bar, and texts. */
  #prepare(content) {
    const flights = content.flights.map((flight) => ({ title: formatControllerName(flight.controller), ...flight }));
    content = { ...content, flights };
    this.#content = content;
    this.#recording = null;
    this.#startsWhenSeen = true;
    this.look = { trails: content.trails, edges: content.links && content.show_links, highlight: null };
    this.#timeline = Timeline.of(content.group);
    this.#timeline.join(content.times.at(-1), content.speed);
    const bar = new PlayerBar(this.#timeline, this.look, content, {
      play: (playing) => this.#play(playing),
      redraw: () => this.#screen?.requestRedraw(),
      changeTheme: () => setThemeOfAll(this.#host.dataset.theme === "dark" ? "light" : "dark"),
    });
    if (this.#bar) this.#bar.element.replaceWith(bar.element);
    else this.#picture.after(bar.element);
    this.#bar = bar;
    for (const part of [this.#picture, this.#plots]) part.classList.toggle("many", flights.length > 2);
    this.#notes.textContent = describeFlights(content);
    this.#host.setAttribute("aria-label", `Flight: ${flights.map(({ title }) => title).join(", ")}`);
  }

  /** "dark" or "light". */
  set theme(theme) {
    this.#host.dataset.theme = theme;
    if (this.#screen) this.#screen.theme = theme;
    this.#bar.show();
  }

  /** The time, in seconds, and whether it advances. */
  get timeline() {
    return this.#timeline;
  }

  /** Whether there is a picture, as opposed to a copy of the last one or none. */
  get isLive() {
    return this.#screen !== null && this.#still.hidden && !this.#hasFailed;
  }

  /** The screen, for tests; null before the first picture. */
  get screen() {
    return this.#screen;
  }

  /** Take a WebGL context and draw; the first time also unpack the frames. */
  async wake() {
    if (this.#onScreen) return; // a printer gets the copy
    if (this.#screen) {
      this.#screen.restore();
      this.#still.hidden = true;
      return;
    }
    if (this.#hasFailed) return;
    try {
      this.#screen = new Screen(this.#picture, this.#plots, () => this.#bar.show());
      this.#picture.querySelector("canvas").after(this.#still);
      this.#screen.theme = this.#host.dataset.theme;
      await this.#unpack();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Begin the flights on the screen, and unpack their frames. */
  async #unpack() {
    const content = this.#content;
    const { flights, comm_radius: commRadius, curves, times } = content;
    this.#screen.begin(flights, commRadius);
    this.#screen.duration = times.at(-1);
    curves.times.forEach((time, i) => this.#screen.addMetrics(time, curves.metric_values[i]));
    const recording = await Recording.unpack(content);
    if (content !== this.#content) return; // others were loaded meanwhile
    this.#recording = recording;
    this.#content = null;
  }

  /** Show an error instead of the picture. */
  #fail(error) {
    this.#hasFailed = true;
    this.#content = null;
    this.#picture.replaceChildren(make("p", { className: "failure" }, error.message));
  }

  /** Give the WebGL context back, and leave a copy of the picture. */
  sleep() {
    this.#keepStill();
    this.#screen.release();
  }

  /** Show the current moment in the light theme, as an image that a printer accepts, until `endPrint`. */
  beginPrint() {
    this.#onScreen = { theme: this.#host.dataset.theme, isLive: this.isLive };
    this.theme = "light";
    if (!this.isLive) return;
    this.draw(performance.now() + 1000, 0); // late enough for the curves, which are not drawn with every picture
    this.#keepStill();
  }

  /** Return to the theme and the picture from before `beginPrint`. */
  endPrint() {
    if (!this.#onScreen) return;
    this.theme = this.#onScreen.theme;
    if (this.#onScreen.isLive) this.#still.hidden = true;
    this.#onScreen = null;
  }

  /** Cover the picture with a copy of it. */
  #keepStill() {
    const canvas = this.#picture.querySelector("canvas");
    [this.#still.width, this.#still.height] = [canvas.width, canvas.height];
    this.#still.getContext("2d").drawImage(canvas, 0, 0);
    this.#still.hidden = false;
  }

  /** Note that the picture is in sight: the first time, play, unless motion should be reduced. */
  see() {
    if (this.#startsWhenSeen && !reducedMotion.matches) this.#timeline.playing = true;
    this.#startsWhenSeen = false;
  }

  /** Draw the current moment; `now` is in milliseconds, `seconds` the real time since the last call. */
  draw(now, seconds) {
    if (!this.#recording) return;
    const { time, playing } = this.#timeline;
    const { frame, ahead } = this.#recording.at(time);
    this.#picture.classList.toggle("waiting", !playing && time === 0);
    this.#screen.show(frame, ahead, now, seconds, this.look);
    this.#host.dataset.drawn = ""; // there is a picture to print
    this.#bar.show();
  }

  /** Play or pause; the player then no longer starts by itself. */
  #play(playing) {
    this.#startsWhenSeen = false;
    this.#timeline.playing = playing;
    this.#bar.show();
  }

  /** Play or pause by the space bar, unless it presses a button. */
  #press(event) {
    if (event.key !== " " || event.target.closest("button, select") || event.ctrlKey || event.metaKey || event.altKey)
      return;
    this.#play(!this.#timeline.playing);
    event.preventDefault();
  }
}

/** Return the endings of flights, and a note on flights in three dimensions. */
function describeFlights({ flights, dimensions }) {
  const endings = flights.filter(({ ending }) => ending).map(({ title, ending }) => `${title}: ${ending}.`);
  if (dimensions === 3) endings.push("Seen from above.");
  return endings.join(" ");
}

/**
 * Build a player in each element `.equiflock-player` of a document, from the JSON in its script element.
 * @param {Document} page
 * @param {string} css the style sheet
 */
export function mountPlayers(page, css) {
  const styles = new CSSStyleSheet();
  styles.replaceSync(css);
  for (const host of page.querySelectorAll(".equiflock-player"))
    host.player ??= new Player(host, JSON.parse(host.querySelector("script").textContent), styles);
}
