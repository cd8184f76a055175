/** The page: requests moments of a flight from the server, shows them, and forwards the user's actions. */

import { Actions, IN_FLIGHT_COMMANDS } from "./actions.js";
import { DEFAULT_LOOK, readAddress, writeAddress } from "./address.js";
import { Connection } from "./connection.js";
import { Controls, showLook } from "./controls.js";
import { byId } from "./player/dom.js";
import { EdgeNotices } from "./edge_notices.js";
import { computeLeaderVelocity, OBSTACLE } from "./player/frames.js";
import { Inspector } from "./inspector.js";
import { Notices, showCompiling, showFailure, showSaveStatus, showSilence } from "./notices.js";
import { showFlockChoice, showPlayback } from "./playback.js";
import { FlightClock, LiveSteps, SavedFrames } from "./player/flight_clock.js";
import { Screen } from "./player/screen.js";
import { showSearch } from "./search_status.js";
import { SettingHistory } from "./setting_history.js";
import { START_COMMANDS, StartRequests } from "./start_requests.js";
import { Tools } from "./tools.js";

/** Connects clock, screen, tools, form and address with the server. */
export class View {
  /** The current setting, the display options, and the flock of saved flights. */
  state = { setting: {}, look: { ...DEFAULT_LOOK }, flock: 0 };
  /** Values that the scenario chose for fields that are null in the setting. */
  scenarioDefaults = {};
  /** Whether the server was started with saved flights. */
  playback = false;
  /** Number of frames received since the page was opened. */
  receivedCount = 0;
  #welcome = null;
  /** Whether a flight has started since the page connected. */
  #hasStarted = false;
  #hasDisconnected = false;
  #lastAddress = "";
  #history = new SettingHistory();
  #lastTick = 0;
  #edgeNotices;
  #startRequests;

  constructor() {
    this.notices = new Notices(byId("notices"));
    this.screen = new Screen(byId("picture"), byId("plots"), showStatus);
    this.#edgeNotices = new EdgeNotices(this.notices, this.screen);
    this.clock = new FlightClock();
    this.tools = new Tools(byId("scene"), this);
    this.inspector = new Inspector(byId("inspection"), this);
    this.connection = new Connection({
      notification: (message) => this.#handleNotification(message),
      answer: (request, message) => this.#handleReply(request, message),
      frame: (frame) => this.#receiveFrame(frame),
      disconnected: (reason) => this.#handleDisconnect(reason),
      silence: (isSilent) => showSilence(isSilent, this.notices),
    });
    this.#startRequests = new StartRequests(this.connection, this.notices, (isSearching) => {
      if (!this.controls || this.playback) return;
      this.showSetting();
      showSearch(isSearching, this.#hasStarted ? this.state.setting : null);
    });
    requestAnimationFrame((now) => this.#tick(now));
  }

  /** The frame that is shown, or null. */
  get frame() {
    return this.clock.frame;
  }

  /** Whether the flight plays, as opposed to being paused. */
  get playing() {
    return this.clock.playing;
  }

  /** Return the mean velocity [x, y] of the first panel's leaders, or null without leaders or frame. */
  computeLeaderVelocity() {
    return this.frame && computeLeaderVelocity(this.frame.panels[0]);
  }

  // Actions of the user.

  /** Start again with the same setting, or with the same flock of saved flights. */
  reset() {
    if (this.playback) this.chooseFlock(this.state.flock);
    else this.restartWith({});
  }

  /** Start a flight with other setting fields, and with those of starts that are still pending. */
  restartWith(fields) {
    if (fields.scenario) this.#adaptSpeed(fields.scenario);
    this.#startWith(fields);
  }

  /** Start a flight as `restartWith` does, at the speed that is shown. */
  #startWith(fields) {
    this.#startRequests.pending = { ...this.#startRequests.pending, ...fields };
    this.#start({ command: "start", setting: { ...this.state.setting, ...this.#startRequests.pending } });
  }

  /** Choose the speed that suits another scenario, unless the user has chosen one for the present. */
  #adaptSpeed(scenario) {
    const { setting, look } = this.state;
    if (look.speed !== this.controls.chooseSpeed(setting.scenario)) return;
    if (this.controls.chooseSpeed(scenario) !== look.speed)
      this.changeLook({ speed: this.controls.chooseSpeed(scenario) });
  }

  /** Play a flock of the saved flights, by its index, from the first frame. */
  chooseFlock(flock) {
    this.#start({ command: "play", flock });
  }

  /** Send a start request, and dismiss all notices but those of a save and of a silent server. */
  #start(request) {
    if (this.#hasStarted) this.notices.dismissExcept("saving", "silence"); // the others concern the previous flight
    this.#startRequests.ask(request, () => this.cancel());
  }

  /** Cancel the search for initial conditions; the current flight continues. */
  cancel() {
    for (const request of this.#startRequests.cancel()) this.#handleReply(request, { event: "cancelled" });
  }

  /** Play if `playing` is true, from the start if a saved flight has ended; else pause at the newest frame. */
  play(playing) {
    if (playing && this.clock.ended) {
      this.clock.clear();
      this.connection.ask({ command: "seek", frame: 0 });
    }
    if (playing) this.notices.dismiss("paused");
    this.#recordFrames(this.clock.play(playing));
    byId("play").classList.toggle("playing", playing);
    byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    this.screen.requestRedraw();
  }

  /** Pause, and advance one time step of a live flight or one frame of a saved one. */
  step() {
    if (this.playback) this.stepFrames(1);
    else {
      this.play(false);
      this.connection.ask({ command: "advance", steps: 1 });
    }
  }

  /** Pause, and go to a frame of a saved flight by its index; a negative one means the first. */
  seek(frame) {
    this.play(false);
    this.connection.askLatest({ command: "seek", frame: Math.max(frame, 0) });
  }

  /** Pause, and go a number of frames of a saved flight forward or, if negative, back. */
  stepFrames(frames) {
    if (this.frame) this.seek(this.frame.step + frames);
  }

  /** Change display options (speed, edges, trails), and update form, legend, address and picture. */
  changeLook(changes) {
    Object.assign(this.state.look, changes);
    this.clock.speed = this.state.look.speed;
    showLook(this.state.look);
    this.#edgeNotices.updateLegend(this.state.look.edges && !this.playback, this.state.setting.environment);
    this.#edgeNotices.reset();
    if (this.frame) this.#requestPicture();
    this.#writeAddress();
    this.screen.requestRedraw();
  }

  /** Let all cameras follow and fit their flocks again. */
  follow() {
    for (const camera of this.screen.cameras) camera.resumeFollowing();
  }

  /** Ask the server to save the live flight, with a film at the current speed. */
  save() {
    this.connection.ask({ command: "save", speed: this.state.look.speed });
  }

  /** Store fields in the setting, the form and the address, so that a reset restores them; no request is sent. */
  updateSetting(fields) {
    this.state.setting = { ...this.state.setting, ...fields };
    this.showSetting();
    this.#writeAddress();
  }

  /** Show the current setting in the form, with fields that were requested and do not fly yet. */
  showSetting() {
    this.controls.show({ ...this.state.setting, ...this.#startRequests.pending }, this.scenarioDefaults);
    this.#edgeNotices.updateLegend(this.state.look.edges && !this.playback, this.state.setting.environment);
  }

  // The address.

  /**
   * Apply the display options and start the flight of the address; nothing if this page wrote it or is not connected.
   */
  readAddress() {
    if (!this.#welcome || (this.frame && location.hash === this.#lastAddress)) return;
    const { setting, look, flock } = readAddress(
      location.hash,
      this.#welcome.setting,
      (scenario) => this.controls.suitable.chooseFor(scenario),
      (scenario) => (this.playback ? DEFAULT_LOOK.speed : this.controls.chooseSpeed(scenario)),
    );
    this.changeLook(look);
    if (this.playback) this.chooseFlock(flock);
    else this.#startWith(setting);
  }

  /** Undo the last change of the setting, or redo it: go back or forward in the browser's history. */
  undo() {
    this.#history.undo();
  }

  redo() {
    this.#history.redo();
  }

  /** Fly what a history entry of this page has, in flight if that is possible, else from the start. */
  restore({ flock, ...setting }) {
    this.#lastAddress = location.hash; // the entry's address needs no reading
    if (this.playback) this.chooseFlock(flock);
    else if (!this.frame || !this.actions.restore(setting)) this.restartWith(setting);
  }

  /** Write the address of the current state; not before a flight has started. A changed setting is a history entry. */
  #writeAddress(inPlace = false) {
    if (!this.#hasStarted) return;
    this.#lastAddress = writeAddress(this.state, this.playback);
    this.#history.write(this.#lastAddress, this.playback ? { flock: this.state.flock } : this.state.setting, inPlace);
  }

  // Messages of the server.

  /** Handle an event that the server sends without a request. */
  #handleNotification(message) {
    if (message.event === "welcome") this.#handleWelcome(message);
    else if (message.event === "compiling") showCompiling(message.text);
    else showSaveStatus(message, this.notices);
  }

  /** Build the form from the server's welcome message, and start the flight of the address. */
  #handleWelcome(welcome) {
    this.notices.dismiss("connection");
    if (this.#hasDisconnected) this.notices.show("Reconnected: the flight starts again.");
    this.#welcome = welcome;
    this.#hasStarted = false;
    this.#startRequests.clear();
    this.state = { ...this.state, setting: welcome.setting, flock: 0 };
    this.playback = welcome.flocks > 0;
    this.actions = new Actions(this, welcome.max_disks);
    showFlockChoice(welcome.flocks);
    this.controls = new Controls(
      welcome,
      (fields) => this.restartWith(fields),
      (fields) => this.actions.changeEnvironment(fields),
      (panel, options) => this.actions.changeLaw(panel, options),
    );
    this.readAddress();
  }

  /** Handle the answer to a request, except a frame. */
  #handleReply(request, message) {
    showCompiling("");
    if (request.command === "watch") {
      this.inspector.receive(message);
      return;
    }
    if (!this.#startRequests.handleReply(request, message)) return;
    if (message.event === "started") this.#handleStarted(request, message);
    if (message.event === "refused") this.#handleRefused(request, message.text);
    if (message.event === "cancelled") this.#handleRefused(request, "Cancelled.", { isError: false });
    if (message.event === "failed") this.#handleFailed(message.text);
    if (message.warning) this.notices.show(message.warning, { id: "warning" });
    else if (request.command === "change_law" && message.event === "done") this.notices.dismiss("warning");
    if (message.event === "saving") this.notices.show("Saving …", { id: "saving", sticky: true });
  }

  /** Show the flight that the server has started, live or saved, and request its first frame. */
  #handleStarted(request, { setting, playback, ...scenarioDefaults }) {
    this.notices.dismiss("failure");
    const isFirst = !this.#hasStarted;
    this.#hasStarted = true;
    this.#edgeNotices.reset();
    this.tools.releaseDrag();
    this.inspector.begin();
    if (playback) {
      this.state.flock = request.flock;
      this.clock.begin(new SavedFrames(playback));
      showPlayback(playback, request.flock, this.screen);
    } else {
      this.state.setting = setting;
      this.scenarioDefaults = scenarioDefaults;
      this.actions.begin(setting, scenarioDefaults.scenario_obstacle_count);
      this.showSetting();
      this.clock.begin(new LiveSteps(setting.time_step));
      const { scenario, controller: first, compare } = setting;
      const { overlay } = scenarioDefaults;
      const flights = [first, compare].filter(Boolean).map((controller) => ({ controller, scenario, overlay }));
      this.screen.begin(flights, scenarioDefaults.comm_radius);
    }
    this.#writeAddress(isFirst);
    this.#requestPicture();
  }

  /** Tell the server whether frames should have edges; its answer is a frame. */
  #requestPicture() {
    this.connection.ask({ command: "show_edges", edges: this.state.look.edges });
  }

  /**
   * Show why a request was refused, and the setting in effect; if no flight has started yet, start the initial setting.
   */
  #handleRefused(request, text, options = { isError: true }) {
    if (IN_FLIGHT_COMMANDS.includes(request.command))
      this.state.setting = { ...this.state.setting, ...this.actions.activeFields };
    this.showSetting();
    byId("flock").value = this.state.flock;
    this.#writeAddress(true); // the refused setting may have come from the address
    if (!this.#hasStarted && START_COMMANDS.includes(request.command)) {
      this.#hasStarted = true;
      this.reset(); // the address was invalid: start the server's initial setting
    }
    this.notices.show(text, options);
  }

  /** Clear the flight, and offer a reset. */
  #handleFailed(text) {
    this.clock.clear();
    showFailure(text, () => this.reset(), this.notices);
  }

  /** Clear the flight, and show the reason until the page is connected again. */
  #handleDisconnect(reason) {
    showCompiling("");
    this.#hasDisconnected = true;
    this.clock.clear();
    this.#startRequests.clear();
    for (const id of ["saving", "failure"]) this.notices.dismiss(id);
    this.notices.show(reason, { id: "connection", isError: true, sticky: true });
  }

  // Frames and pictures.

  /** Give a frame to the clock, and request the next. */
  #receiveFrame(frame) {
    showCompiling("");
    this.receivedCount += 1;
    this.#recordFrames(this.clock.receive(frame));
    this.#requestAhead();
    if (!this.playing) this.screen.requestRedraw();
  }

  /** Request the frame that the clock needs next, unless a frame or a start is pending. */
  #requestAhead() {
    const { request } = this.clock;
    if (request && !this.connection.isWaitingFor("advance", "seek", ...START_COMMANDS)) this.connection.ask(request);
  }

  /** Add the metrics of live frames to the curves, also of those that are never drawn, and notice missing edges. */
  #recordFrames(frames) {
    for (const { time, panels } of frames) {
      const metricValues = panels.map((panel) => panel.metricValues);
      if (!this.playback) this.screen.addMetrics(time, metricValues);
      if (this.state.look.edges) this.#edgeNotices.notifyHiddenEdges(panels);
    }
  }

  /** Advance and draw the flight, once per picture of the browser; `now` is in milliseconds. */
  #tick(now) {
    requestAnimationFrame((next) => this.#tick(next));
    const seconds = (now - this.#lastTick) / 1000;
    this.#lastTick = now;
    if (!this.frame) return;
    this.#recordFrames(this.clock.advance(seconds));
    this.#requestAhead();
    this.tools.tick();
    this.inspector.tick(now);
    if (this.playing && this.clock.ended) this.play(false);
    const { edges, trails } = this.state.look;
    const { frame, ahead } = this.clock;
    byId("clear").hidden = this.playback || !frame.panels[0].disks.length;
    this.screen.show(frame, ahead, now, seconds, {
      edges,
      trails,
      highlight: this.tools.highlight,
      inspection: this.inspector.drawing,
    });
    if (this.playback && !this.connection.isWaitingFor("seek")) byId("slider").value = frame.step;
  }
}

/** Show the time, whether the camera follows, the number of pictures per second, and what only obstacles need. */
function showStatus({ picture: { frame }, duration, cameras, rate }) {
  const time = frame.time.toFixed(2);
  byId("time").textContent = duration === null ? `${time} s` : `${time} / ${duration.toFixed(2)} s`;
  byId("follow").setAttribute("aria-pressed", cameras[0].following && cameras[0].agent === null);
  byId("rate").textContent = rate ? `${rate} fps` : "";
  byId("orbit-row").hidden = duration !== null || !frame.panels[0].roles.includes(OBSTACLE);
}
