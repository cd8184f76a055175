/** The page: asks the server for moments of a flight, shows them, and passes on what a person does. */

import { LOOK, readAddress, writeAddress } from "./address.js";
import { Camera } from "./camera.js";
import { Controls, title } from "./controls.js";
import { Display } from "./display.js";
import { leaderVelocity } from "./frames.js";
import { Link } from "./link.js";
import { Notices } from "./notices.js";
import { LiveSteps, Player, SavedFrames } from "./player.js";
import { History } from "./plots.js";
import { Scene } from "./scene.js";
import { Tools } from "./tools.js";

const byId = (id) => document.getElementById(id);
const NUMBERS_MS = 66;
const RATE_MS = 1000;
/** How long pictures are drawn after somebody has moved something: the camera may glide. */
const AWAKE_MS = 3000;
/** An answer that takes longer is announced. */
const PATIENCE_MS = 500;
const MOST_DISKS = 20;
/** Below so many agents no line at all means that nobody hears anybody. */
const FEW = 1000;

export class View {
  /** The setting of the flight, the way it looks, and which flock of saved flights. */
  state = { setting: {}, look: { ...LOOK }, flock: 0 };
  cameras = [];
  /** How many frames came, and how many pictures were drawn, since the page was opened. */
  received = 0;
  drawn = 0;
  /** Whether the server was started with saved flights. */
  replaying = false;
  #welcome = null;
  /** What the server told of the saved flights. */
  #saved = null;
  /** Whether the obstacle course's own disk, which comes before all others, is still there. */
  #courseDisk = false;
  #written = "";
  #history = new History();
  #shown = { frame: null, ahead: 0 };
  #awake = 0;
  #times = { picture: 0, numbers: 0, rate: 0, drawn: 0 };
  #patience = 0;

  constructor() {
    const canvas = byId("scene");
    this.scene = new Scene(canvas);
    this.player = new Player();
    this.display = new Display();
    this.notices = new Notices(byId("notices"));
    this.tools = new Tools(canvas, this);
    new ResizeObserver(() => {
      this.scene.resize();
      if (this.frame) this.display.place(this.viewports());
      this.wake();
    }).observe(canvas);
    canvas.addEventListener("webglcontextrestored", () => this.wake());
    this.link = new Link({
      message: (message) => this.#message(message),
      frame: (frame) => this.#take(frame),
      lost: (reason) => this.#lost(reason),
    });
    requestAnimationFrame((now) => this.#tick(now));
  }

  /** The frame that is shown, or null. */
  get frame() {
    return this.player.frame;
  }

  get playing() {
    return this.player.playing;
  }

  /** The communication radius R. */
  get radius() {
    return this.#saved?.radius ?? this.state.setting.radius;
  }

  viewports() {
    return this.scene.viewports(this.frame.panels.length);
  }

  leaderVelocity() {
    return this.frame && leaderVelocity(this.frame.panels[0]);
  }

  ask(request) {
    this.link.ask(request);
  }

  askLatest(request) {
    this.link.askLatest(request);
  }

  /** Draw for a while, though nothing flies. */
  wake() {
    this.#awake = performance.now() + AWAKE_MS;
  }

  // What a person asks for.

  /** Begin again, with the same setting. */
  reset() {
    clearTimeout(this.#patience);
    this.#patience = setTimeout(
      () => this.notices.tell("Looking for such a flock …", { id: "patience", stays: true }),
      PATIENCE_MS,
    );
    if (this.replaying) this.ask({ do: "replay", flock: this.state.flock });
    else this.ask({ do: "start", setting: this.state.setting });
  }

  /** Begin again with other fields of the setting. */
  change(fields) {
    this.state.setting = { ...this.state.setting, ...fields };
    this.reset();
  }

  chooseFlock(flock) {
    this.state.flock = flock;
    this.reset();
  }

  play(playing) {
    if (playing && this.player.ended) {
      this.player.forget();
      this.ask({ do: "seek", frame: 0 });
    }
    this.#note(this.player.play(playing));
    byId("play").classList.toggle("playing", playing);
    byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  }

  step() {
    if (this.replaying) this.nudge(1);
    else {
      this.play(false);
      this.ask({ do: "advance", steps: 1 });
    }
  }

  /** Go to a frame of a saved flight. */
  seek(frame) {
    this.play(false);
    this.askLatest({ do: "seek", frame: Math.max(frame, 0) });
  }

  nudge(frames) {
    this.seek(this.frame.step + frames);
  }

  look(changes) {
    Object.assign(this.state.look, changes);
    const { speed, edges, trails } = this.state.look;
    this.player.speed = speed;
    [byId("edges").checked, byId("trails").checked] = [edges, trails];
    const options = [...byId("speed").options].map(({ value }) => Number(value));
    if (!options.includes(speed)) byId("speed").append(new Option(`${speed}×`, speed));
    byId("speed").value = speed;
    if (this.frame) this.#show();
    this.#writeAddress();
    this.wake();
  }

  orbit(on) {
    this.state.setting = { ...this.state.setting, orbit: on };
    byId("orbit").checked = on;
    this.ask({ do: "orbit", active: on });
    this.#writeAddress();
  }

  theme(theme) {
    document.documentElement.dataset.theme = this.scene.theme = theme;
    this.wake();
  }

  follow() {
    for (const camera of this.cameras) camera.followAgain();
  }

  // Obstacles of one's own stand in the address, and are there again after a reset.

  dropDisk(disk) {
    const { disks } = this.state.setting;
    if (disks.length + this.#courseDisk >= MOST_DISKS) {
      this.notices.tell(`There may be ${MOST_DISKS} obstacles: remove one first.`);
      return;
    }
    this.ask({ do: "drop", disk });
    this.#keepDisks([...disks, disk]);
  }

  moveDisk(number, [x, y]) {
    this.askLatest({ do: "move", number, at: [x, y] });
    const own = number - this.#courseDisk;
    this.#keepDisks(this.state.setting.disks.map((disk, i) => (i === own ? { ...disk, x, y } : disk)));
  }

  liftDisk(number) {
    this.ask({ do: "lift", number });
    const own = number - this.#courseDisk;
    if (own < 0) this.#courseDisk = false;
    else this.#keepDisks(this.state.setting.disks.filter((_, i) => i !== own));
  }

  #keepDisks(disks) {
    this.state.setting = { ...this.state.setting, disks };
    this.#writeAddress();
  }

  // The address.

  /** Fly what the address says, unless it was this page that wrote it. */
  readAddress() {
    if (!this.#welcome || (this.frame && location.hash === this.#written)) return;
    this.player.forget();
    this.state = readAddress(location.hash, this.#welcome.setting);
    this.look({});
    this.reset();
  }

  #writeAddress() {
    this.#written = writeAddress(this.state, this.replaying);
    history.replaceState(null, "", this.#written);
  }

  // The server's answers.

  #message(message) {
    clearTimeout(this.#patience);
    this.notices.dismiss("patience");
    const { notices } = this;
    const answers = {
      welcome: () => this.#begin(message),
      started: () => this.#started(message),
      refused: () => this.#refused(message.text),
      failed: () => this.#failed(message.text),
      saving: () => notices.tell("Saving …", { id: "saving", stays: true }),
      progress: () => {
        const share = message.total ? `${Math.round((100 * message.done) / message.total)} %` : "…";
        notices.tell(`Drawing the film: ${share}`, { id: "saving", stays: true });
      },
      saved: () => this.#tellSaved(message),
      unsaved: () =>
        notices.tell(message.text, {
          id: "saving",
          bad: true,
          stays: true,
          action: { text: "OK", press: () => notices.dismiss("saving") },
        }),
    };
    answers[message.is]?.();
  }

  #begin(welcome) {
    this.notices.dismiss("connection");
    this.#welcome = welcome;
    this.replaying = welcome.flocks > 0;
    document.body.classList.toggle("replaying", this.replaying);
    for (const element of document.querySelectorAll(".live")) element.hidden = this.replaying;
    byId("replaying").hidden = byId("slider").hidden = !this.replaying;
    byId("flock-row").hidden = welcome.flocks < 2;
    byId("flock").max = welcome.flocks - 1;
    this.controls = new Controls(welcome, (fields) => this.change(fields));
    this.readAddress();
  }

  #started({ setting, replay }) {
    this.notices.dismiss("failure");
    this.#history.clear();
    this.scene.forgetTrails();
    this.cameras = [];
    this.#saved = replay ?? null;
    if (replay) {
      const { curves, times, titles, agents } = replay;
      curves.times.forEach((time, i) => this.#history.add(time, curves.numbers[i]));
      byId("slider").max = times.length - 1;
      byId("flock").value = this.state.flock;
      byId("replayed").textContent =
        `${titles.map(title).join(" and ")}: ${agents.toLocaleString("en")} agents, ${times.at(-1).toFixed(2)} s`;
      this.player.begin(new SavedFrames(replay));
      this.display.begin(titles);
    } else {
      this.state.setting = setting;
      this.#courseDisk = setting.scenario === "obstacles";
      this.controls.show(setting);
      this.player.begin(new LiveSteps(setting.time_step));
      this.display.begin([setting.controller, setting.compare].filter(Boolean));
    }
    this.#writeAddress();
    this.#show();
  }

  /** Say how pictures shall look, and get one. */
  #show() {
    this.ask({ do: "show", edges: this.state.look.edges });
  }

  #refused(text) {
    this.notices.tell(text, { bad: true });
    // An address that makes no sense: better fly something than nothing.
    if (this.frame || this.replaying || !this.link.idle) return;
    this.state.setting = { ...this.#welcome.setting };
    this.reset();
  }

  #failed(text) {
    this.player.forget();
    const action = { text: "Reset", press: () => this.reset() };
    this.notices.tell(`The flight broke down: ${text}`, { id: "failure", bad: true, stays: true, action });
  }

  #lost(reason) {
    this.player.forget();
    this.notices.tell(reason, { id: "connection", bad: true, stays: true });
  }

  #tellSaved({ folder, name, since }) {
    const part = since > 0 ? ` from ${since.toFixed(2)} s on, when agents came, went or changed roles last` : "";
    const link = { href: `/saved/${name}/film.mp4`, text: "film", download: `${name}.mp4` };
    const action = { text: "OK", press: () => this.notices.dismiss("saving") };
    this.notices.tell(`Saved${part}: ${folder}`, { id: "saving", stays: true, link, action });
  }

  // Time.

  #take(frame) {
    this.received += 1;
    this.#note(this.player.take(frame));
    this.#askAhead();
    if (!this.playing) this.wake();
  }

  #askAhead() {
    const { request } = this.player;
    if (request && this.link.idle) this.ask(request);
  }

  /** Keep what must be remembered of frames that are shown, though some of them for no time at all. */
  #note(frames) {
    for (const { time, panels } of frames) {
      if (!this.#saved)
        this.#history.add(
          time,
          panels.map(({ numbers }) => numbers),
        );
      if (this.cameras.length === panels.length) continue;
      this.cameras = panels.map(() => new Camera(this.radius));
      this.display.place(this.viewports());
      const hidden = this.state.look.edges && panels[0].agents > FEW && !panels[0].edges.length;
      if (hidden) this.notices.tell("So many hear each other that lines would only hide them.");
    }
  }

  #tick(now) {
    requestAnimationFrame((next) => this.#tick(next));
    const seconds = (now - this.#times.picture) / 1000;
    this.#times.picture = now;
    if (!this.frame) return;
    this.#note(this.player.advance(seconds));
    this.tools.tick();
    this.#askAhead();
    if (this.playing && this.player.ended) this.play(false);
    // The same picture again would only hold up the frames that are on their way.
    const { frame, ahead } = this.player;
    if (frame === this.#shown.frame && ahead === this.#shown.ahead && now > this.#awake) return;
    this.#shown = { frame, ahead };
    this.#draw(Math.min(seconds, 0.1), ahead);
    if (now - this.#times.numbers > NUMBERS_MS) this.#drawNumbers(now);
  }

  #draw(seconds, ahead) {
    const views = this.viewports();
    this.frame.panels.forEach((panel, i) => {
      this.cameras[i].watch(panel, ahead);
      this.cameras[i].glide(seconds, views[i]);
    });
    Camera.share(this.cameras);
    const { edges, trails } = this.state.look;
    this.scene.draw(this.frame, ahead, this.cameras, {
      edges,
      trails,
      radius: this.radius,
      highlight: this.tools.highlight,
    });
    this.drawn += 1;
  }

  #drawNumbers(now) {
    this.#times.numbers = now;
    this.display.show(this.frame, this.#history);
    if (this.replaying) byId("slider").value = this.frame.step;
    byId("follow").setAttribute("aria-pressed", this.cameras[0].following);
    const passed = now - this.#times.rate;
    if (passed > RATE_MS) {
      byId("rate").textContent = `${Math.round((1000 * (this.drawn - this.#times.drawn)) / passed)} fps`;
      this.#times = { ...this.#times, rate: now, drawn: this.drawn };
    }
  }
}
