/** The page: asks the server for moments of a flight, shows them, and passes on what a person does. */

import { LOOK, readAddress, writeAddress } from "./address.js";
import { Controls, title } from "./controls.js";
import { byId, make } from "./dom.js";
import { leaderVelocity } from "./frames.js";
import { Link } from "./link.js";
import { Notices } from "./notices.js";
import { LiveSteps, Player, SavedFrames } from "./player.js";
import { Screen } from "./screen.js";
import { Tools } from "./tools.js";

/** An answer that takes longer is announced. */
const PATIENCE_MS = 500;
/** Below so many agents no line at all means that nobody hears anybody. */
const FEW = 1000;
/** Obstacles stand on a grid so fine, for the sake of a short address. */
const DISK_GRID = 1000;

export class View {
  /** The setting that flies, the way it looks, and which flock of saved flights. */
  state = { setting: {}, look: { ...LOOK }, flock: 0 };
  /** Whether the server was started with saved flights. */
  replaying = false;
  /** How many frames came since the page was opened. */
  received = 0;
  #welcome = null;
  /** Fields of the setting that were asked for and not answered yet. */
  #pending = {};
  /** Whether anything has flown since the connection was made. */
  #flown = false;
  /** Whether the obstacle course's own disk, which comes before all others, is still there. */
  #courseDisk = false;
  #lostOnce = false;
  #written = "";
  #toldOfEdges = false;
  #last = 0;
  #patience = 0;

  constructor() {
    this.notices = new Notices(byId("notices"));
    this.screen = new Screen(byId("scene"));
    this.player = new Player();
    this.tools = new Tools(byId("scene"), this);
    this.link = new Link({
      news: (message) => this.#news(message),
      answer: (request, message) => this.#answer(request, message),
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

  leaderVelocity() {
    return this.frame && leaderVelocity(this.frame.panels[0]);
  }

  // What a person asks for.

  /** Begin again, with the same setting. */
  reset() {
    if (this.replaying) this.chooseFlock(this.state.flock);
    else this.change({});
  }

  /** Begin again with other fields of the setting. */
  change(fields) {
    this.#pending = { ...this.#pending, ...fields };
    this.#start({ do: "start", setting: { ...this.state.setting, ...this.#pending } });
  }

  /** Play another flock of the saved flights. */
  chooseFlock(flock) {
    this.#start({ do: "replay", flock });
  }

  #start(request) {
    if (this.#flown) this.notices.dismissAllBut("saving"); // they are about what was before
    clearTimeout(this.#patience);
    const action = { text: "Cancel", press: () => this.cancel() };
    const announce = () => this.notices.tell("Looking for a start …", { id: "patience", stays: true, action });
    this.#patience = setTimeout(announce, PATIENCE_MS);
    // One that is being looked for is no longer wanted, and ends as soon as the server hears of this.
    if (this.link.waitsFor(request.do)) this.link.askAtOnce(request);
    else this.link.ask(request);
  }

  /** Look no further for a start: what flew before flies on. */
  cancel() {
    for (const request of this.link.takeBack("start", "replay")) this.#answer(request, { is: "cancelled" });
    this.link.askAtOnce({ do: "cancel" });
  }

  play(playing) {
    if (playing && this.player.ended) {
      this.player.forget();
      this.link.ask({ do: "seek", frame: 0 });
    }
    this.#note(this.player.play(playing));
    byId("play").classList.toggle("playing", playing);
    byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    this.screen.wake();
  }

  step() {
    if (this.replaying) this.nudge(1);
    else {
      this.play(false);
      this.link.ask({ do: "advance", steps: 1 });
    }
  }

  /** Go to a frame of a saved flight. */
  seek(frame) {
    this.play(false);
    this.link.askLatest({ do: "seek", frame: Math.max(frame, 0) });
  }

  nudge(frames) {
    if (this.frame) this.seek(this.frame.step + frames);
  }

  look(changes) {
    Object.assign(this.state.look, changes);
    const { speed, edges, trails } = this.state.look;
    this.player.speed = speed;
    [byId("edges").checked, byId("trails").checked] = [edges, trails];
    const options = [...byId("speed").options].map(({ value }) => Number(value));
    if (!options.includes(speed)) byId("speed").append(new Option(`${speed}×`, speed));
    byId("speed").value = speed;
    this.#toldOfEdges = false;
    if (this.frame) this.#show();
    this.#writeAddress();
    this.screen.wake();
  }

  orbit(on) {
    this.#act({ do: "orbit", active: on }, () => this.#keep({ orbit: on }));
  }

  follow() {
    for (const camera of this.screen.cameras) camera.followAgain();
  }

  scatter() {
    this.#act({ do: "scatter" });
  }

  /** Let the agent of a number lead, or follow again. */
  appoint(agent) {
    this.#act({ do: "appoint", agent });
  }

  steer(velocity) {
    this.#act({ do: "steer", velocity });
  }

  save() {
    this.link.ask({ do: "save", speed: this.state.look.speed });
  }

  /** Remove agents within reach of places. */
  remove(places, panel, reach) {
    this.#act({ do: "remove", at: places, panel, reach });
  }

  // Obstacles of one's own stand in the address, and are there again after a reset.

  dropDisk(disk) {
    if (this.state.setting.disks.length + this.#courseDisk >= this.#welcome.most_disks) {
      this.notices.tell(`There may be ${this.#welcome.most_disks} obstacles: remove one first.`);
      return;
    }
    const dropped = onGrid(disk);
    this.#act({ do: "drop", disk: dropped }, () => this.#keep({ disks: [...this.state.setting.disks, dropped] }));
  }

  moveDisk(number, x, y) {
    const place = onGrid({ x, y });
    const own = number - this.#courseDisk;
    const moved = () => this.state.setting.disks.map((disk, i) => (i === own ? { ...disk, ...place } : disk));
    this.#act({ do: "move", number, at: [place.x, place.y] }, () => this.#keep({ disks: moved() }));
  }

  liftDisk(number) {
    const own = number - this.#courseDisk;
    this.#act({ do: "lift", number }, () => {
      if (own < 0) this.#courseDisk = false;
      else this.#keep({ disks: this.state.setting.disks.filter((_, i) => i !== own) });
    });
  }

  clearDisks() {
    for (let number = this.state.setting.disks.length + this.#courseDisk - 1; number >= 0; number--)
      this.liftDisk(number);
  }

  /** Do something to the flight. Only the last of several of a kind counts, but for those that add up. */
  #act(request, then = () => {}) {
    const done = () => {
      then();
      if (!this.playing) this.link.askLatest({ do: "advance", steps: 0 }); // to see what came of it
    };
    if (["steer", "move"].includes(request.do)) this.link.askLatest(request, done);
    else this.link.ask(request, done);
  }

  /** Keep what was done in the setting, so that it is done again after a reset. */
  #keep(fields) {
    this.state.setting = { ...this.state.setting, ...fields };
    this.controls.show(this.state.setting);
    this.#writeAddress();
  }

  // The address.

  /** Fly what the address says, unless it was this page that wrote it. */
  readAddress() {
    if (!this.#welcome || (this.frame && location.hash === this.#written)) return;
    const { setting, look, flock } = readAddress(location.hash, this.#welcome.setting);
    this.look(look);
    if (this.replaying) this.chooseFlock(flock);
    else this.change(setting);
  }

  #writeAddress() {
    if (!this.#flown) return;
    this.#written = writeAddress(this.state, this.replaying);
    history.replaceState(null, "", this.#written);
  }

  // The server's words.

  #news(message) {
    const stays = { id: "saving", stays: true };
    const action = { text: "OK", press: () => this.notices.dismiss("saving") };
    if (message.is === "welcome") this.#begin(message);
    else if (message.is === "progress") {
      const share = message.total ? `${Math.round((100 * message.done) / message.total)} %` : "…";
      this.notices.tell(`Drawing the film: ${share}`, stays);
    } else if (message.is === "unsaved") this.notices.tell(message.text, { ...stays, bad: true, action });
    else {
      const { folder, name, since } = message;
      const part = `, from ${since.toFixed(2)} s on, when agents or obstacles last came, went or changed roles`;
      const link = { href: `/saved/${name}/film.mp4`, text: "Download the film.", download: `${name}.mp4` };
      this.notices.tell(`Saved${since > 0 ? part : ""}: ${folder}`, { ...stays, link, action });
    }
  }

  #begin(welcome) {
    this.notices.dismiss("connection");
    if (this.#lostOnce) this.notices.tell("Connected again: the flight begins anew.");
    this.#welcome = welcome;
    this.#flown = false;
    this.#pending = {};
    this.state = { ...this.state, setting: welcome.setting, flock: 0 };
    this.replaying = welcome.flocks > 0;
    document.body.classList.toggle("replaying", this.replaying);
    for (const element of document.querySelectorAll(".live")) element.hidden = this.replaying;
    for (const element of document.querySelectorAll(".replay")) element.hidden = !this.replaying;
    byId("flock-row").hidden = welcome.flocks < 2;
    byId("flock").max = welcome.flocks - 1;
    byId("flocks").textContent = `Flock 0–${welcome.flocks - 1}`;
    this.controls = new Controls(welcome, (fields) => this.change(fields));
    this.readAddress();
  }

  #answer(request, message) {
    if (["start", "replay"].includes(request.do)) {
      if (this.link.waitsFor(request.do)) {
        if (message.is === "cancelled") return; // for the sake of another one
      } else {
        clearTimeout(this.#patience);
        this.notices.dismiss("patience");
        this.#pending = {};
      }
    }
    if (message.is === "started") this.#started(request, message);
    if (message.is === "refused") this.#refused(request, message.text);
    if (message.is === "cancelled") this.#refused(request, "Cancelled.", { bad: false });
    if (message.is === "failed") this.#failed(message.text);
    if (message.is === "saving") this.notices.tell("Saving …", { id: "saving", stays: true });
  }

  #started(request, { setting, replay }) {
    this.notices.dismiss("failure");
    this.#flown = true;
    this.#toldOfEdges = false;
    this.tools.letGo();
    if (replay) {
      const { curves, times, titles, agents, dimensions, endings } = replay;
      this.state.flock = request.flock;
      this.player.begin(new SavedFrames(replay));
      this.screen.begin(titles, replay.radius);
      curves.times.forEach((time, i) => this.screen.note(time, curves.numbers[i]));
      byId("slider").max = times.length - 1;
      byId("flock").value = request.flock;
      const ending = (i) => endings[i] && `: ${endings[i]}`;
      const flights = titles.map((name, i) => `${title(name)}, ${agents[i].toLocaleString("en")} agents${ending(i)}`);
      if (dimensions === 3) flights.push("seen from above");
      byId("replayed").replaceChildren(...flights.map((text) => make("span", {}, text)));
      this.screen.duration = times.at(-1);
    } else {
      this.state.setting = setting;
      this.#courseDisk = setting.scenario === "obstacles";
      this.controls.show({ ...setting, ...this.#pending });
      this.player.begin(new LiveSteps(setting.time_step));
      this.screen.begin([setting.controller, setting.compare].filter(Boolean), setting.radius);
    }
    this.#writeAddress();
    this.#show();
  }

  /** Say how pictures shall look, and get one. */
  #show() {
    this.link.ask({ do: "show", edges: this.state.look.edges });
  }

  #refused(request, text, how = { bad: true }) {
    this.controls.show(this.state.setting);
    byId("flock").value = this.state.flock;
    this.#writeAddress(); // which may have asked for it
    if (!this.#flown && ["start", "replay"].includes(request.do)) {
      this.#flown = true;
      this.reset(); // an address that makes no sense: better fly something than nothing
    }
    this.notices.tell(text, how);
  }

  #failed(text) {
    this.player.forget();
    const action = { text: "Reset", press: () => this.reset() };
    this.notices.tell(`The flight broke down: ${text}`, { id: "failure", bad: true, stays: true, action });
  }

  #lost(reason) {
    this.#lostOnce = true;
    this.player.forget();
    clearTimeout(this.#patience);
    for (const id of ["saving", "patience", "failure"]) this.notices.dismiss(id);
    this.notices.tell(reason, { id: "connection", bad: true, stays: true });
  }

  // Time.

  #take(frame) {
    this.received += 1;
    this.#note(this.player.take(frame));
    this.#askAhead();
    if (!this.playing) this.screen.wake();
  }

  #askAhead() {
    const { request } = this.player;
    if (request && !this.link.waitsFor("advance", "seek", "start", "replay")) this.link.ask(request);
  }

  /** Keep what must be remembered of frames that are shown, though some of them for no time at all. */
  #note(frames) {
    for (const { time, panels } of frames) {
      if (!this.replaying)
        this.screen.note(
          time,
          panels.map(({ numbers }) => numbers),
        );
      const hidden = this.state.look.edges && panels.some(({ agents, edges }) => agents > FEW && !edges.length);
      if (hidden && !this.#toldOfEdges) {
        this.#toldOfEdges = true;
        this.notices.tell("So many hear each other that lines would only hide them.");
      }
    }
  }

  #tick(now) {
    requestAnimationFrame((next) => this.#tick(next));
    const seconds = (now - this.#last) / 1000;
    this.#last = now;
    if (!this.frame) return;
    this.#note(this.player.advance(seconds));
    this.#askAhead();
    this.tools.tick();
    if (this.playing && this.player.ended) this.play(false);
    const { edges, trails } = this.state.look;
    const { frame, ahead } = this.player;
    byId("clear").hidden = this.replaying || !frame.panels[0].disks.length;
    this.screen.show(frame, ahead, now, seconds, { edges, trails, highlight: this.tools.highlight });
    if (this.replaying && !this.link.waitsFor("seek")) byId("slider").value = frame.step;
  }
}

function onGrid(place) {
  const round = ([key, value]) => [key, Math.round(value * DISK_GRID) / DISK_GRID];
  return Object.fromEntries(Object.entries(place).map(round));
}
