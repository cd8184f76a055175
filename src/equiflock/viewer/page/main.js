/** The page: asks the server for moments of a flight, shows them, and passes on what a person does. */

import { LOOK, readAddress, writeAddress } from "./address.js";
import { Camera } from "./camera.js";
import { Controls, title } from "./controls.js";
import { flockSize, leaderVelocity } from "./frames.js";
import { Link } from "./link.js";
import { History, METRICS, Plot } from "./plots.js";
import { Scene } from "./scene.js";
import { Tools, typing } from "./tools.js";

const byId = (id) => document.getElementById(id);
/** The longest time between two pictures that a flight takes part in, in seconds. */
const LONGEST_PAUSE = 0.1;
const MOST_STEPS = 1000;
const PLOT_SECONDS = 0.066;
const NOTICE_MS = 6000;
/** How long pictures are drawn after somebody has moved something: the camera may glide. */
const AWAKE_MS = 3000;

class View {
  frame = null;
  cameras = [];
  /** The setting of the flight, the way it looks, and which flock of saved flights. */
  state = { setting: {}, look: { ...LOOK }, flock: 0 };
  playing = true;
  /** What the server told of saved flights, if it was started with some. */
  replay = null;
  /** How many frames came and how many pictures were drawn since the page was opened. */
  received = 0;
  drawn = 0;
  /** Where the flight shall be now, in seconds. */
  #clock = 0;
  /** How much of it passes between two pictures. */
  #pace = 0;
  /** Frames that came before their time. */
  #early = [];
  #last = 0;
  /** What the picture shows. */
  #shown = { frame: null, ahead: 0 };
  /** Until when pictures are drawn though nothing flies: somebody has moved something. */
  #awake = 0;
  #plotted = 0;
  #history = new History();
  #rates = { since: 0, drawn: 0 };

  constructor() {
    this.scene = new Scene(byId("scene"));
    this.plots = METRICS.map((metric, index) => new Plot(byId("plots"), metric, index));
    this.tools = new Tools(byId("scene"), this);
    this.#theme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark"));
    this.#buttons();
    new ResizeObserver(() => {
      this.scene.resize();
      this.#placeTitles();
    }).observe(byId("scene"));
    addEventListener("keydown", (event) => this.#key(event));
    for (const event of ["pointermove", "pointerdown", "wheel", "keydown", "resize"]) addEventListener(event, () => this.#wake());
    byId("scene").addEventListener("webglcontextrestored", () => this.#wake());
    addEventListener("hashchange", () => this.#readAddress());
    this.link = new Link({
      message: (message) => this.#message(message),
      frame: (frame) => this.#frame(frame),
      lost: (reason) => this.#lost(reason),
    });
    requestAnimationFrame((now) => this.#tick(now));
  }

  // --- What the tools need ---

  viewports() {
    return this.scene.viewports(this.frame.panels.length);
  }

  ask(request) {
    this.link.ask(request);
  }

  askLatest(request) {
    this.link.askLatest(request);
  }

  leaderVelocity() {
    return this.frame && leaderVelocity(this.frame.panels[0]);
  }

  /** Obstacles of one's own stand in the address; the course's own, which comes first, does not. */
  get #givenDisks() {
    return this.state.setting.scenario === "obstacles" && !this.courseLifted ? 1 : 0;
  }

  dropDisk(disk) {
    this.ask({ do: "drop", disk });
    this.#disks([...this.state.setting.disks, disk]);
  }

  moveDisk(number, [x, y]) {
    this.askLatest({ do: "move", number, at: [x, y] });
    const own = number - this.#givenDisks;
    this.#disks(this.state.setting.disks.map((disk, i) => (i === own ? { ...disk, x, y } : disk)));
  }

  liftDisk(number) {
    this.ask({ do: "lift", number });
    const own = number - this.#givenDisks;
    if (own < 0) this.courseLifted = true;
    this.#disks(this.state.setting.disks.filter((_, i) => i !== own));
  }

  #disks(disks) {
    this.state.setting = { ...this.state.setting, disks };
    this.#writeAddress();
  }

  // --- The server's answers ---

  #message(message) {
    const answers = {
      welcome: () => this.#welcome(message),
      started: () => this.#started(message),
      refused: () => this.#refused(message.text),
      failed: () => this.#failed(message.text),
      saving: () => this.tell("Saving …", { id: "saving", stays: true }),
      progress: () => this.tell(message.total ? `Drawing the film: ${Math.round(100 * message.done / message.total)} %` : "Saving …", { id: "saving", stays: true }),
      saved: () => this.#saved(message),
      unsaved: () => this.tell(message.text, { id: "saving", bad: true }),
    };
    answers[message.is]?.();
  }

  #welcome(welcome) {
    this.dismiss("connection");
    this.welcome = welcome;
    this.isReplay = welcome.flocks > 0;
    document.body.classList.toggle("replaying", this.isReplay);
    for (const element of document.querySelectorAll(".live")) element.hidden = this.isReplay;
    byId("replaying").hidden = byId("slider").hidden = !this.isReplay;
    byId("flock-row").hidden = welcome.flocks < 2;
    byId("flock").max = welcome.flocks - 1;
    this.controls ??= new Controls(welcome, (changes) => this.#change(changes));
    this.#readAddress();
  }

  #started(message) {
    this.dismiss("failure");
    this.frame = null;
    this.#early = [];
    this.#clock = 0;
    this.courseLifted = false;
    this.#history.clear();
    this.scene.forgetTrails();
    this.cameras = [];
    this.replay = message.replay ?? null;
    if (this.replay) {
      const { curves, times, titles, agents } = this.replay;
      curves.times.forEach((time, i) => this.#history.add(time, curves.numbers[i]));
      byId("slider").max = times.length - 1;
      byId("replayed").textContent = `${titles.map(title).join(" and ")}: ${agents.toLocaleString("en")} agents, ${times.at(-1).toFixed(2)} s`;
    } else {
      this.state.setting = message.setting;
      this.controls.show(message.setting);
    }
    this.#writeAddress();
    this.#show();
  }

  #frame(frame) {
    this.received += 1;
    this.#early.push(frame);
    if (!this.frame || !this.playing) {
      this.#clock = frame.time;
      this.#takeFrames();
      this.#wake();
    } else {
      // Not at the next picture: the way there and back takes time, too.
      this.#askAhead();
    }
  }

  /** Show the frames whose time has come. */
  #takeFrames() {
    while (this.#early.length && this.#early[0].time <= this.#clock + 1e-9) {
      const first = this.frame === null;
      this.frame = this.#early.shift();
      if (!this.replay) this.#history.add(this.frame.time, this.frame.panels.map((panel) => panel.numbers));
      if (this.cameras.length !== this.frame.panels.length) {
        this.cameras = this.frame.panels.map(() => new Camera(this.#radius));
      }
      if (first) this.#titles();
    }
  }

  #refused(text) {
    this.tell(text, { bad: true });
    // An address that makes no sense: better fly something than nothing.
    if (!this.frame && this.link.idle && !this.fellBack) {
      this.fellBack = true;
      this.state.setting = { ...this.welcome.setting };
      this.reset();
    }
  }

  #failed(text) {
    this.frame = null;
    this.tell(`The flight broke down: ${text}`, { id: "failure", bad: true, stays: true, action: ["Reset", () => this.reset()] });
  }

  #lost(reason) {
    this.frame = null;
    this.tell(reason, { id: "connection", bad: true, stays: true });
  }

  #saved({ folder, name, since }) {
    const part = since > 0 ? ` from ${since.toFixed(2)} s on, when agents changed last` : "";
    const film = Object.assign(document.createElement("a"), { href: `/saved/${name}/film.mp4`, textContent: "film", download: `${name}.mp4` });
    this.tell(`Saved in ${folder}${part}. `, { id: "saving", stays: true, more: film, action: ["OK", () => this.dismiss("saving")] });
  }

  // --- Time ---

  #tick(now) {
    requestAnimationFrame((next) => this.#tick(next));
    const seconds = Math.min((now - this.#last) / 1000, LONGEST_PAUSE);
    this.#last = now;
    if (!this.frame) return;
    if (this.playing) this.#advance(seconds * this.state.look.speed);
    // The same picture again would only hold up the frames that are on their way.
    const ahead = this.#ahead;
    if (this.frame === this.#shown.frame && ahead === this.#shown.ahead && now > this.#awake) return;
    this.#shown = { frame: this.frame, ahead };
    this.#draw(seconds, ahead);
    if (now - this.#plotted > PLOT_SECONDS * 1000) {
      this.#plotted = now;
      this.#drawNumbers(now);
    }
  }

  /** Move the clock on, show the frame whose time has come, and ask for the one after it. */
  #advance(seconds) {
    this.#pace += 0.2 * (seconds - this.#pace);
    // A slow server makes time pass slowly, not in leaps.
    const most = this.#stepAfter(this.#newest) + LONGEST_PAUSE * this.state.look.speed;
    this.#clock = Math.min(this.#clock + seconds, this.#newest.time + most);
    this.#takeFrames();
    this.#askAhead();
  }

  get #newest() {
    return this.#early.at(-1) ?? this.frame;
  }

  /** Seconds from a frame to the one after it. */
  #stepAfter(frame) {
    if (!this.replay) return this.state.setting.time_step;
    const { times } = this.replay;
    return times[Math.min(frame.step + 1, times.length - 1)] - frame.time;
  }

  /** Ask for the moment that will be shown in two pictures' time, unless an answer is on its way. */
  #askAhead() {
    if (!this.playing || !this.link.idle) return;
    const newest = this.#newest, soon = this.#clock + 2 * this.#pace;
    if (this.replay) {
      const next = frameAt(this.replay.times, soon);
      if (next > newest.step) this.ask({ do: "seek", frame: next });
      else if (this.frame.step === this.replay.times.length - 1) this.#play(false);
      return;
    }
    const steps = Math.floor((soon - newest.time) / this.state.setting.time_step + 1e-9);
    if (steps > 0) this.ask({ do: "advance", steps: Math.min(steps, MOST_STEPS) });
  }

  /** How far the picture is ahead of the frame: agents move on within a step as they do in the simulation. */
  get #ahead() {
    const step = this.replay ? this.replay.time_step : this.state.setting.time_step;
    const last = this.replay && this.frame.step === this.replay.times.length - 1;
    return last ? 0 : Math.min(Math.max(this.#clock - this.frame.time, 0), step);
  }

  get #radius() {
    return this.replay ? this.replay.radius : this.state.setting.radius;
  }

  #wake() {
    this.#awake = performance.now() + AWAKE_MS;
  }

  #draw(seconds, ahead) {
    const views = this.viewports();
    this.frame.panels.forEach((panel, i) => {
      this.cameras[i].watch(panel, ahead);
      this.cameras[i].glide(seconds, views[i]);
    });
    Camera.share(this.cameras);
    const { edges, trails } = this.state.look;
    this.scene.draw(this.frame, ahead, this.cameras, { edges, trails, radius: this.#radius, highlight: this.tools.highlight });
    this.drawn += 1;
  }

  #drawNumbers(now) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = { ink: colour("ink"), faint: colour("faint"), grid: colour("line"), series: [colour("first"), colour("second")] };
    const time = this.frame.time;
    this.frame.panels.forEach((panel, i) => {
      byId("titles").children[i].lastChild.textContent = `${flockSize(panel).toLocaleString("en")} agents`;
    });
    for (const plot of this.plots) {
      plot.tell(this.frame.panels);
      plot.draw(this.#history, time, colours);
    }
    byId("time").textContent = `${time.toFixed(2)} s`;
    if (this.replay) byId("slider").value = this.frame.step;
    byId("follow").setAttribute("aria-pressed", this.cameras[0].following);
    const since = (now - this.#rates.since) / 1000;
    if (since > 1) {
      byId("rate").textContent = `${Math.round((this.drawn - this.#rates.drawn) / since)} fps`;
      this.#rates = { since: now, drawn: this.drawn };
    }
  }

  // --- What a person asks for ---

  /** Begin again with other fields of the setting. */
  #change(changes) {
    this.state.setting = { ...this.state.setting, ...changes };
    this.reset();
  }

  reset() {
    this.fellBack = false;
    if (this.isReplay) this.ask({ do: "replay", flock: this.state.flock });
    else this.ask({ do: "start", setting: this.state.setting });
  }

  step() {
    this.#play(false);
    if (this.replay) this.ask({ do: "seek", frame: this.frame.step + 1 });
    else this.ask({ do: "advance", steps: 1 });
  }

  #play(playing) {
    const ended = this.replay && this.frame?.step === this.replay.times.length - 1;
    if (playing && ended) {
      this.frame = null;
      this.ask({ do: "seek", frame: 0 });
    }
    this.playing = playing;
    if (this.frame) {
      this.#clock = this.#newest.time; // where the server is
      this.#takeFrames();
    }
    const button = byId("play");
    button.classList.toggle("playing", playing);
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
  }

  /** Say how pictures shall look, and get the first. */
  #show() {
    this.ask({ do: "show", edges: this.state.look.edges });
  }

  #look(changes) {
    Object.assign(this.state.look, changes);
    for (const key of ["edges", "trails"]) byId(key).checked = this.state.look[key];
    if (![...byId("speed").options].some(({ value }) => Number(value) === this.state.look.speed)) {
      byId("speed").append(new Option(`${this.state.look.speed}×`, this.state.look.speed));
    }
    byId("speed").value = this.state.look.speed;
    if (this.frame) this.#show();
    this.#writeAddress();
  }

  orbit(on) {
    this.state.setting = { ...this.state.setting, orbit: on };
    byId("orbit").checked = on;
    this.ask({ do: "orbit", active: on });
    this.#writeAddress();
  }

  #readAddress() {
    if (!this.welcome || location.hash === this.written && this.frame) return;
    const { setting, look, flock } = readAddress(location.hash, this.welcome.setting);
    this.frame = null;
    this.state = { setting, look, flock };
    this.#look({});
    this.reset();
  }

  #writeAddress() {
    this.written = writeAddress(this.state, this.isReplay);
    history.replaceState(null, "", this.written);
  }

  #theme(theme) {
    document.documentElement.dataset.theme = this.scene.theme = theme;
    this.#wake();
    localStorage.setItem("theme", theme);
  }

  #buttons() {
    const press = {
      play: () => this.#play(!this.playing),
      step: () => this.step(),
      reset: () => this.reset(),
      scatter: () => this.ask({ do: "scatter" }),
      follow: () => this.cameras.forEach((camera) => camera.followAgain()),
      theme: () => this.#theme(this.scene.theme === "dark" ? "light" : "dark"),
      help: () => byId("guide").showModal(),
      save: () => this.ask({ do: "save" }),
      link: () => this.#copyLink(),
    };
    for (const [id, action] of Object.entries(press)) byId(id).onclick = action;
    for (const key of ["edges", "trails"]) byId(key).onchange = () => this.#look({ [key]: byId(key).checked });
    byId("orbit").onchange = () => this.orbit(byId("orbit").checked);
    byId("speed").onchange = () => this.#look({ speed: Number(byId("speed").value) });
    byId("slider").oninput = () => {
      this.#play(false);
      this.askLatest({ do: "seek", frame: byId("slider").valueAsNumber });
    };
    byId("flock").onchange = () => {
      this.state.flock = byId("flock").valueAsNumber || 0;
      this.reset();
    };
    byId("replaying").onsubmit = (event) => event.preventDefault();
    for (const button of document.querySelectorAll("[data-tool]")) button.onclick = () => this.#tool(button.dataset.tool);
    this.#tool("pan");
    this.#play(true);
  }

  #tool(tool) {
    this.tools.choose(tool);
    for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", button.dataset.tool === tool);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || byId("guide").open) return;
    const live = {
      s: () => byId("scatter").click(),
      n: () => byId("another").click(),
      o: () => this.orbit(!this.state.setting.orbit),
      2: () => this.#tool("lead"),
      3: () => this.#tool("obstacle"),
      4: () => this.#tool("remove"),
    };
    const always = {
      " ": () => this.#play(!this.playing),
      ".": () => this.step(),
      r: () => this.reset(),
      f: () => byId("follow").click(),
      e: () => this.#look({ edges: !this.state.look.edges }),
      t: () => this.#look({ trails: !this.state.look.trails }),
      d: () => byId("theme").click(),
      l: () => this.#copyLink(),
      "?": () => byId("help").click(),
      "+": () => this.tools.zoom(1.25),
      "=": () => this.tools.zoom(1.25),
      "-": () => this.tools.zoom(0.8),
      1: () => this.#tool("pan"),
    };
    if (!this.frame) return;
    const action = always[event.key.toLowerCase()] ?? (this.isReplay ? null : live[event.key.toLowerCase()]);
    if (action) action();
    else if (this.replay && ["ArrowLeft", "ArrowRight"].includes(event.key)) this.#nudge(event.key === "ArrowLeft" ? -1 : 1);
    else if (this.replay || !this.tools.arrow(event.key)) return;
    event.preventDefault();
  }

  #nudge(frames) {
    this.#play(false);
    this.askLatest({ do: "seek", frame: Math.max(this.frame.step + frames, 0) });
  }

  async #copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.tell("The link is copied.");
    } catch {
      this.tell(`Copy the address of this page: ${location.href}`);
    }
  }

  // --- What is told ---

  /** A line for the reader. One with an id takes the place of the one before; one that stays must be dismissed. */
  tell(text, { id = `notice ${text}`, bad = false, stays = false, action = null, more = null } = {}) {
    this.dismiss(id);
    const notice = Object.assign(document.createElement("p"), { className: bad ? "bad" : "" });
    notice.dataset.id = id;
    notice.append(text, ...(more ? [more] : []));
    if (action) notice.append(Object.assign(document.createElement("button"), { textContent: action[0], onclick: action[1] }));
    byId("notices").append(notice);
    if (!stays) setTimeout(() => notice.remove(), NOTICE_MS);
  }

  dismiss(id) {
    for (const notice of [...byId("notices").children]) if (notice.dataset.id === id) notice.remove();
  }

  /** A title above each panel. */
  #titles() {
    const names = this.replay ? this.replay.titles : [this.state.setting.controller, this.state.setting.compare].filter(Boolean);
    const views = this.viewports();
    byId("titles").replaceChildren(...views.map((_, i) => {
      const label = Object.assign(document.createElement("span"), { className: `panel-${i}` });
      label.append(title(names[i]), document.createElement("small"));
      return label;
    }));
    byId("titles").dataset.panels = views.length;
    this.#placeTitles();
  }

  #placeTitles() {
    if (!this.frame) return;
    this.viewports().forEach(({ x, y, width }, i) => {
      const label = byId("titles").children[i];
      label.style.left = `${x + width / 2}px`;
      label.style.top = `${y + 14}px`;
    });
  }
}

/** The last of some times that is not after a moment. */
function frameAt(times, moment) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (times[middle] <= moment + 1e-9) low = middle;
    else high = middle - 1;
  }
  return low;
}

try {
  /** For the curious, and for tests. */
  globalThis.flockView = new View();
} catch (error) {
  byId("notices").append(Object.assign(document.createElement("p"), { className: "bad", textContent: error.message }));
  throw error;
}
