/** The page: asks the server for moments of a flight, shows them, and passes on what a person does. */

import { Actions, IN_FLIGHT } from "./actions.js";
import { LOOK, readAddress, writeAddress } from "./address.js";
import { Controls, showLook } from "./controls.js";
import { byId } from "./dom.js";
import { leaderVelocity } from "./frames.js";
import { Lines } from "./lines.js";
import { Link } from "./link.js";
import { Notices, showCompiling, tellOfFailure, tellOfSaving } from "./notices.js";
import { offerFlocks, showPlayback } from "./playback.js";
import { LiveSteps, Player, SavedFrames } from "./player.js";
import { Screen } from "./screen.js";
import { STARTS, Starts } from "./starts.js";
import { Tools } from "./tools.js";

export class View {
  /** The setting that flies, the way it looks, and which flock of saved flights. */
  state = { setting: {}, look: { ...LOOK }, flock: 0 };
  /** What the scenario has chosen where the setting has null. */
  chosen = {};
  /** Whether the server was started with saved flights. */
  playback = false;
  /** How many frames came since the page was opened. */
  received = 0;
  #welcome = null;
  /** Whether anything has flown since the connection was made. */
  #flown = false;
  #lostOnce = false;
  #written = "";
  #last = 0;
  #lines;
  #starts;

  constructor() {
    this.notices = new Notices(byId("notices"));
    this.#lines = new Lines(this.notices);
    this.screen = new Screen(byId("scene"));
    this.player = new Player();
    this.tools = new Tools(byId("scene"), this);
    this.link = new Link({
      news: (message) => this.#news(message),
      answer: (request, message) => this.#answer(request, message),
      frame: (frame) => this.#take(frame),
      lost: (reason) => this.#lost(reason),
    });
    this.#starts = new Starts(this.link, this.notices);
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
    if (this.playback) this.chooseFlock(this.state.flock);
    else this.change({});
  }

  /** Begin again with other fields of the setting. */
  change(fields) {
    this.#starts.pending = { ...this.#starts.pending, ...fields };
    this.#start({ do: "start", setting: { ...this.state.setting, ...this.#starts.pending } });
  }

  /** Play another flock of the saved flights. */
  chooseFlock(flock) {
    this.#start({ do: "play", flock });
  }

  #start(request) {
    if (this.#flown) this.notices.dismissAllBut("saving"); // they are about what was before
    this.#starts.ask(request, () => this.cancel());
  }

  /** Look no further for a start: what flew before flies on. */
  cancel() {
    for (const request of this.#starts.cancel()) this.#answer(request, { is: "cancelled" });
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
    if (this.playback) this.nudge(1);
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
    this.player.speed = this.state.look.speed;
    showLook(this.state.look);
    this.#lines.explain(this.state.look.edges && !this.playback, this.state.setting.world);
    this.#lines.begin();
    if (this.frame) this.#show();
    this.#writeAddress();
    this.screen.wake();
  }

  follow() {
    for (const camera of this.screen.cameras) camera.followAgain();
  }

  save() {
    this.link.ask({ do: "save", speed: this.state.look.speed });
  }

  /** Keep what was done in the setting, so that it is done again after a reset. */
  keep(fields) {
    this.state.setting = { ...this.state.setting, ...fields };
    this.showSetting();
    this.#writeAddress();
  }

  /** Show in the form what flies, with changes that were asked for. */
  showSetting(changes = {}) {
    this.controls.show({ ...this.state.setting, ...changes }, this.chosen);
    this.#lines.explain(this.state.look.edges && !this.playback, this.state.setting.world);
  }

  // The address.

  /** Fly what the address says, unless it was this page that wrote it. */
  readAddress() {
    if (!this.#welcome || (this.frame && location.hash === this.#written)) return;
    const { setting, look, flock } = readAddress(location.hash, this.#welcome.setting);
    this.look(look);
    if (this.playback) this.chooseFlock(flock);
    else this.change(setting);
  }

  #writeAddress() {
    if (!this.#flown) return;
    this.#written = writeAddress(this.state, this.playback);
    history.replaceState(null, "", this.#written);
  }

  // The server's words.

  #news(message) {
    if (message.is === "welcome") this.#begin(message);
    else if (message.is === "compiling") showCompiling(message.text);
    else tellOfSaving(message, this.notices);
  }

  #begin(welcome) {
    this.notices.dismiss("connection");
    if (this.#lostOnce) this.notices.tell("Connected again: the flight begins anew.");
    this.#welcome = welcome;
    this.#flown = false;
    this.#starts.forget();
    this.state = { ...this.state, setting: welcome.setting, flock: 0 };
    this.playback = welcome.flocks > 0;
    this.actions = new Actions(this, welcome.most_disks);
    offerFlocks(welcome.flocks);
    this.controls = new Controls(
      welcome,
      (fields) => this.change(fields),
      (fields) => this.actions.changeWorld(fields),
      (panel, options) => this.actions.changeLaw(panel, options),
    );
    this.readAddress();
  }

  #answer(request, message) {
    showCompiling("");
    if (!this.#starts.settle(request, message)) return;
    if (message.is === "started") this.#started(request, message);
    if (message.is === "refused") this.#refused(request, message.text);
    if (message.is === "cancelled") this.#refused(request, "Cancelled.", { bad: false });
    if (message.is === "failed") this.#failed(message.text);
    if (message.remark) this.notices.tell(message.remark, { id: "remark" });
    else if (request.do === "law" && message.is === "done") this.notices.dismiss("remark"); // it is no longer true
    if (message.is === "saving") this.notices.tell("Saving …", { id: "saving", stays: true });
  }

  #started(request, { setting, playback, ...chosen }) {
    this.notices.dismiss("failure");
    this.#flown = true;
    this.#lines.begin();
    this.tools.letGo();
    if (playback) {
      this.state.flock = request.flock;
      this.player.begin(new SavedFrames(playback));
      showPlayback(playback, request.flock, this.screen);
    } else {
      this.state.setting = setting;
      this.chosen = chosen;
      this.actions.begin(setting, chosen.given);
      this.showSetting(this.#starts.pending);
      this.player.begin(new LiveSteps(setting.time_step));
      const { scenario, controller: first, compare } = setting;
      const flights = [first, compare].filter(Boolean).map((controller) => ({ controller, scenario }));
      this.screen.begin(flights, chosen.comm_radius);
    }
    this.#writeAddress();
    this.#show();
  }

  /** Say how pictures shall look, and get one. */
  #show() {
    this.link.ask({ do: "show", edges: this.state.look.edges });
  }

  #refused(request, text, how = { bad: true }) {
    if (IN_FLIGHT.includes(request.do)) this.state.setting = { ...this.state.setting, ...this.actions.flown };
    this.showSetting();
    byId("flock").value = this.state.flock;
    this.#writeAddress(); // which may have asked for it
    if (!this.#flown && STARTS.includes(request.do)) {
      this.#flown = true;
      this.reset(); // an address that makes no sense: better fly something than nothing
    }
    this.notices.tell(text, how);
  }

  #failed(text) {
    this.player.forget();
    tellOfFailure(text, () => this.reset(), this.notices);
  }

  #lost(reason) {
    showCompiling("");
    this.#lostOnce = true;
    this.player.forget();
    this.#starts.forget();
    for (const id of ["saving", "failure"]) this.notices.dismiss(id);
    this.notices.tell(reason, { id: "connection", bad: true, stays: true });
  }

  // Time.

  #take(frame) {
    showCompiling("");
    this.received += 1;
    this.#note(this.player.take(frame));
    this.#askAhead();
    if (!this.playing) this.screen.wake();
  }

  #askAhead() {
    const { request } = this.player;
    if (request && !this.link.waitsFor("advance", "seek", ...STARTS)) this.link.ask(request);
  }

  /** Keep what must be remembered of frames that are shown, though some of them for no time at all. */
  #note(frames) {
    for (const { time, panels } of frames) {
      const numbers = panels.map((panel) => panel.numbers);
      if (!this.playback) this.screen.note(time, numbers);
      if (this.state.look.edges) this.#lines.note(panels);
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
    byId("clear").hidden = this.playback || !frame.panels[0].disks.length;
    this.screen.show(frame, ahead, now, seconds, { edges, trails, highlight: this.tools.highlight });
    if (this.playback && !this.link.waitsFor("seek")) byId("slider").value = frame.step;
  }
}
