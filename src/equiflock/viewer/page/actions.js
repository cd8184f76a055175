/** What a person does to a flight, passed on to the server. */

/** Obstacles stand on a grid so fine, for the sake of a short address. */
const DISK_GRID = 1000;
/** Of several of these that wait only the last counts; others add up. */
const LATEST = ["steer", "move", "world", "law"];
/** Requests that change the setting while it flies; they show at once, and are taken back if they are refused. */
export const IN_FLIGHT = ["world", "law"];

/** Where the setting has the options of the law of each panel. */
const LAW_OPTIONS = ["controller_options", "compare_options"];

export class Actions {
  /** How many obstacles are left of those that the scenario has by itself; they come before one's own. */
  given = 0;
  /** The fields of the setting that may change in flight, as they fly. */
  flown = {};
  #view;
  #mostDisks;

  /**
   * @param {import("./view.js").View} view
   * @param {number} mostDisks how many obstacles there may be
   */
  constructor(view, mostDisks) {
    this.#view = view;
    this.#mostDisks = mostDisks;
  }

  orbit(on) {
    this.#act({ do: "orbit", active: on }, () => this.#view.keep({ orbit: on }));
  }

  /** Change fields of the world. */
  changeWorld(fields) {
    const world = { ...this.#view.state.setting.world, ...fields };
    // Lost messages are seen by their lines.
    if (world.loss && !this.#view.state.setting.world.loss) this.#view.look({ edges: true });
    this.#changeInFlight({ do: "world", world }, { world });
  }

  /** Go on with other options of the law of a panel. */
  changeLaw(panel, options) {
    this.#changeInFlight({ do: "law", panel, options }, { [LAW_OPTIONS[panel]]: options });
  }

  /** Change fields of the setting: sliders show at once what was asked for, and what flies if that is refused. */
  #changeInFlight(request, fields) {
    this.#view.keep(fields);
    if (!this.#view.frame) return; // nothing flies: it is for the next start
    this.#act(request, () => {
      Object.assign(this.flown, fields);
      if (!this.#view.link.waitsFor(request.do)) this.#view.keep(fields);
    });
  }

  /** Take note of the setting of a flight that begins. */
  begin({ world, controller_options, compare_options }, given) {
    this.flown = { world, controller_options, compare_options };
    this.given = given;
  }

  /** Let so many followers fail. */
  fail(kind, agents) {
    this.#act({ do: "fail", kind, agents });
  }

  /** Let all agents work again. */
  repair() {
    this.#act({ do: "repair" });
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

  /** Remove agents within reach of places. */
  remove(places, panel, reach) {
    this.#act({ do: "remove", at: places, panel, reach });
  }

  // Obstacles of one's own stand in the address, and are there again after a reset.

  get #disks() {
    return this.#view.state.setting.disks;
  }

  dropDisk(disk) {
    if (this.given + this.#disks.length >= this.#mostDisks) {
      this.#view.notices.tell(`There may be ${this.#mostDisks} obstacles: remove one first.`);
      return;
    }
    const dropped = onGrid(disk);
    this.#act({ do: "drop", disk: dropped }, () => this.#view.keep({ disks: [...this.#disks, dropped] }));
  }

  moveDisk(number, x, y) {
    const place = onGrid({ x, y });
    const own = number - this.given;
    const moved = () => this.#disks.map((disk, i) => (i === own ? { ...disk, ...place } : disk));
    this.#act({ do: "move", number, at: [place.x, place.y] }, () => this.#view.keep({ disks: moved() }));
  }

  liftDisk(number) {
    const own = number - this.given;
    this.#act({ do: "lift", number }, () => {
      if (own < 0) this.given -= 1;
      else this.#view.keep({ disks: this.#disks.filter((_, i) => i !== own) });
    });
  }

  clearDisks() {
    for (let number = this.given + this.#disks.length - 1; number >= 0; number--) this.liftDisk(number);
  }

  #act(request, then = () => {}) {
    const { link } = this.#view;
    const done = () => {
      then();
      if (!this.#view.playing) link.askLatest({ do: "advance", steps: 0 }); // to see what came of it
    };
    if (LATEST.includes(request.do)) link.askLatest(request, done);
    else link.ask(request, done);
  }
}

function onGrid(place) {
  const round = ([key, value]) => [key, Math.round(value * DISK_GRID) / DISK_GRID];
  return Object.fromEntries(Object.entries(place).map(round));
}
