/** Actions of the user on a flight, sent to the server as requests. */

import { isEqual, listChanges } from "./setting_history.js";

/** Obstacle coordinates are rounded to 1 / DISK_GRID, to keep the address short. */
const DISK_GRID = 1000;
/** Commands of which only the last pending one counts; others add up. */
const LATEST_ONLY = ["steer", "move_disk", "change_environment", "change_law"];
/** Commands that change the setting in flight. The form shows them at once, and goes back if the server refuses. */
export const IN_FLIGHT_COMMANDS = ["change_environment", "change_law"];

/** The setting's field for the law options of each panel. */
const LAW_OPTIONS = ["controller_options", "compare_options"];

/** Sends the user's actions to the server, and updates the setting when the server has carried them out. */
export class Actions {
  /** Number of obstacles that remain of the scenario's; they come before the user's. */
  scenarioObstacleCount = 0;
  /** Setting fields that may change in flight, with the values in effect. */
  activeFields = {};
  #view;
  #maxDisks;

  /**
   * @param {import("./view.js").View} view
   * @param {number} maxDisks maximum number of obstacles
   */
  constructor(view, maxDisks) {
    this.#view = view;
    this.#maxDisks = maxDisks;
  }

  /** Switch the orbit technique on or off. */
  setOrbit(on) {
    this.#request({ command: "set_orbit", active: on }, () => this.#view.updateSetting({ orbit: on }));
  }

  /**
   * Change fields of the environment (radio and body) in flight. The first packet loss also shows the communication
   * graph.
   */
  changeEnvironment(fields) {
    const before = this.#view.state.setting.environment;
    const environment = { ...before, ...fields };
    // Show the communication graph, where lost messages are visible.
    if (environment.packet_loss && !before.packet_loss) this.#view.changeLook({ edges: true });
    this.#changeInFlight({ command: "change_environment", environment }, { environment });
  }

  /**
   * Replace all options of a panel's law in flight by those that differ from their defaults; the scenario and the other
   * law follow in the options that they share with it.
   */
  changeLaw(panel, options) {
    this.#changeInFlight({ command: "change_law", panel, options }, { [LAW_OPTIONS[panel]]: options });
  }

  /**
   * Show setting fields in the form at once, and request them; without a flight they only apply to the next start. The
   * answer may have further fields that change with them.
   */
  #changeInFlight(request, fields) {
    this.#view.updateSetting(fields);
    if (!this.#view.frame) return; // no flight: the fields apply to the next start
    this.#request(request, ({ changes }) => {
      const inEffect = { ...fields, ...changes };
      Object.assign(this.activeFields, inEffect);
      if (!this.#view.connection.isWaitingFor(request.command)) this.#view.updateSetting(inEffect);
    });
  }

  /** Store the fields in effect, and the number of the scenario's obstacles, of a flight that has started. */
  begin({ environment, options, controller_options, compare_options }, scenarioObstacleCount) {
    this.activeFields = { environment, options, controller_options, compare_options };
    this.scenarioObstacleCount = scenarioObstacleCount;
  }

  /** Go to another setting in flight; return false, and do nothing, if it takes a new start or several requests. */
  restore(setting) {
    const [field, ...others] = listChanges(this.#view.state.setting, setting);
    if (others.length) return false;
    const panel = LAW_OPTIONS.indexOf(field);
    if (field === "environment") this.changeEnvironment(setting.environment);
    else if (panel >= 0) this.changeLaw(panel, setting[field]);
    else return field === "disks" && this.#restoreDisks(setting.disks);
    return true;
  }

  /** Undo or redo the addition, move or removal of one of the user's obstacles; return false if it is not just that. */
  #restoreDisks(disks) {
    const before = this.#disks;
    const index = before.findIndex((disk, i) => !isEqual(disk, disks[i])); // -1 if some were added
    const { x, y } = disks[index] ?? {};
    const moved = before.map((disk, i) => (i === index ? { ...disk, x, y } : disk));
    const remaining = before.filter((_, i) => i !== index);
    if (index < 0 && disks.length === before.length + 1) this.addDisk(disks.at(-1));
    else if (index >= 0 && isEqual(remaining, disks)) this.removeDisk(this.scenarioObstacleCount + index);
    else if (index >= 0 && isEqual(moved, disks)) this.moveDisk(this.scenarioObstacleCount + index, x, y);
    else return false;
    return true;
  }

  /** Let `agents` random working followers fail; `kind` is one of FAILURES. */
  fail(kind, agents) {
    this.#request({ command: "fail_agents", kind, agents });
  }

  /** Repair all agents. */
  repair() {
    this.#request({ command: "repair_agents" });
  }

  /** Give followers new random velocities. */
  scatter() {
    this.#request({ command: "scatter" });
  }

  /** Make an agent a leader or, if it is one, a follower. */
  toggleLeader(agent) {
    this.#request({ command: "toggle_leader", agent });
  }

  /** Set the velocity [x, y] of all leaders, in world units per second. */
  steer(velocity) {
    this.#request({ command: "steer", velocity });
  }

  /** Remove the agents within `reach` (world units) of any of the positions in a panel. */
  removeAgents(positions, panel, reach) {
    this.#request({ command: "remove_agents", positions, panel, reach });
  }

  // The user's obstacles are part of the address, and are restored by a reset.

  get #disks() {
    return this.#view.state.setting.disks;
  }

  /** Add an obstacle {x, y, radius}, rounded to 1 / DISK_GRID; with `maxDisks` obstacles, only show a notice. */
  addDisk(disk) {
    if (this.scenarioObstacleCount + this.#disks.length >= this.#maxDisks) {
      this.#view.notices.show(`At most ${this.#maxDisks} obstacles are allowed: remove one first.`);
      return;
    }
    const added = snapToGrid(disk);
    this.#request({ command: "add_disk", disk: added }, () =>
      this.#view.updateSetting({ disks: [...this.#disks, added] }),
    );
  }

  /** Move the centre of an obstacle, indexed as in the frame; of the scenario's own, the setting does not change. */
  moveDisk(index, x, y) {
    const place = snapToGrid({ x, y });
    const own = index - this.scenarioObstacleCount;
    const moved = () => this.#disks.map((disk, i) => (i === own ? { ...disk, ...place } : disk));
    this.#request({ command: "move_disk", index, position: [place.x, place.y] }, () =>
      this.#view.updateSetting({ disks: moved() }),
    );
  }

  /** Remove an obstacle, indexed as in the frame; those of the scenario come back with a reset. */
  removeDisk(index) {
    const own = index - this.scenarioObstacleCount;
    this.#request({ command: "remove_disk", index }, () => {
      if (own < 0) this.scenarioObstacleCount -= 1;
      else this.#view.updateSetting({ disks: this.#disks.filter((_, i) => i !== own) });
    });
  }

  /** Remove all obstacles except walls. */
  clearDisks() {
    for (let index = this.scenarioObstacleCount + this.#disks.length - 1; index >= 0; index--) this.removeDisk(index);
  }

  /** Queue a request; when the server has carried it out, call `then` with its answer and, if paused, request a frame. */
  #request(request, then = () => {}) {
    const { connection } = this.#view;
    const done = (answer) => {
      then(answer);
      if (!this.#view.playing) connection.askLatest({ command: "advance", steps: 0 }); // to show the result
    };
    if (LATEST_ONLY.includes(request.command)) connection.askLatest(request, done);
    else connection.ask(request, done);
  }
}

/** Return a copy with all numbers rounded to 1 / DISK_GRID. */
function snapToGrid(place) {
  const round = ([key, value]) => [key, Math.round(value * DISK_GRID) / DISK_GRID];
  return Object.fromEntries(Object.entries(place).map(round));
}
