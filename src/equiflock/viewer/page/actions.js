/** Actions of the user on a flight, sent to the server as requests. */

/** Obstacle coordinates are rounded to 1 / DISK_GRID, to keep the address short. */
const DISK_GRID = 1000;
/** Commands of which only the last pending one counts; others add up. */
const LATEST_ONLY = ["steer", "move_disk", "change_world", "change_law"];
/** Commands that change the setting in flight. The form shows them at once, and goes back if the server refuses. */
export const IN_FLIGHT_COMMANDS = ["change_world", "change_law"];

/** The setting's field for the law options of each panel. */
const LAW_OPTIONS = ["controller_options", "compare_options"];

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

  orbit(on) {
    this.#request({ command: "set_orbit", active: on }, () => this.#view.updateSetting({ orbit: on }));
  }

  /** Change fields of the world (radio and body). */
  changeWorld(fields) {
    const world = { ...this.#view.state.setting.world, ...fields };
    // Show the communication graph, where lost messages are visible.
    if (world.packet_loss && !this.#view.state.setting.world.packet_loss) this.#view.look({ edges: true });
    this.#changeInFlight({ command: "change_world", world }, { world });
  }

  /** Replace the options of a panel's law. */
  changeLaw(panel, options) {
    this.#changeInFlight({ command: "change_law", panel, options }, { [LAW_OPTIONS[panel]]: options });
  }

  /** Change setting fields: the form shows the requested values at once, and the active ones if they are refused. */
  #changeInFlight(request, fields) {
    this.#view.updateSetting(fields);
    if (!this.#view.frame) return; // no flight: the fields apply to the next start
    this.#request(request, () => {
      Object.assign(this.activeFields, fields);
      if (!this.#view.connection.isWaitingFor(request.command)) this.#view.updateSetting(fields);
    });
  }

  /** Store the setting of a flight that starts. */
  begin({ world, controller_options, compare_options }, scenarioObstacleCount) {
    this.activeFields = { world, controller_options, compare_options };
    this.scenarioObstacleCount = scenarioObstacleCount;
  }

  /** Let `agents` random followers fail. */
  fail(kind, agents) {
    this.#request({ command: "fail_agents", kind, agents });
  }

  /** Repair all agents. */
  repair() {
    this.#request({ command: "repair_agents" });
  }

  scatter() {
    this.#request({ command: "scatter" });
  }

  /** Make an agent a leader or, if it is one, a follower. */
  toggleLeader(agent) {
    this.#request({ command: "toggle_leader", agent });
  }

  steer(velocity) {
    this.#request({ command: "steer", velocity });
  }

  /** Remove the agents within `reach` (world units) of any of the positions. */
  remove(positions, panel, reach) {
    this.#request({ command: "remove_agents", positions, panel, reach });
  }

  // The user's obstacles are part of the address, and are restored by a reset.

  get #disks() {
    return this.#view.state.setting.disks;
  }

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

  moveDisk(index, x, y) {
    const place = snapToGrid({ x, y });
    const own = index - this.scenarioObstacleCount;
    const moved = () => this.#disks.map((disk, i) => (i === own ? { ...disk, ...place } : disk));
    this.#request({ command: "move_disk", index, position: [place.x, place.y] }, () =>
      this.#view.updateSetting({ disks: moved() }),
    );
  }

  removeDisk(index) {
    const own = index - this.scenarioObstacleCount;
    this.#request({ command: "remove_disk", index }, () => {
      if (own < 0) this.scenarioObstacleCount -= 1;
      else this.#view.updateSetting({ disks: this.#disks.filter((_, i) => i !== own) });
    });
  }

  clearDisks() {
    for (let index = this.scenarioObstacleCount + this.#disks.length - 1; index >= 0; index--) this.removeDisk(index);
  }

  #request(request, then = () => {}) {
    const { connection } = this.#view;
    const done = () => {
      then();
      if (!this.#view.playing) connection.askLatest({ command: "advance", steps: 0 }); // to show the result
    };
    if (LATEST_ONLY.includes(request.command)) connection.askLatest(request, done);
    else connection.ask(request, done);
  }
}

function snapToGrid(place) {
  const round = ([key, value]) => [key, Math.round(value * DISK_GRID) / DISK_GRID];
  return Object.fromEntries(Object.entries(place).map(round));
}
