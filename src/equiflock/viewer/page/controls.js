/** The form: shows a setting, and reports the fields that the user changes. */

import { DEFAULT_LOOK } from "./address.js";
import { byId, make } from "./player/dom.js";
import { EnvironmentControls } from "./environment_controls.js";
import { LawControls } from "./law_controls.js";
import { formatControllerName, formatName } from "./player/names.js";
import { ScenarioMenu } from "./scenario_menu.js";
import { showOffer, SuitableControllers } from "./suitable_controllers.js";

const MIN_AGENTS = 3,
  MAX_AGENTS = 10000;
/** Ids of the controller menus, one for each panel. */
const MENUS = ["controller", "compare"];
/** Setting fields with a number box, common to all scenarios. */
const NUMBER_FIELDS = ["agents", "seed", "comm_radius", "time_step"];

/** The form of the setting: scenario, controllers, environment and shared numbers. */
export class Controls {
  #welcome;
  #onChange;
  /** The setting that is shown. */
  #shown = {};
  /** The scenario whose suitable controllers come first in the menus. */
  #menuScenario = null;

  /**
   * @param {object} welcome the server's welcome message, which lists controllers, scenarios and bodies
   * @param {function(object): void} onChange called with the setting fields that changed
   * @param {function(object): void} onEnvironment called with the fields of the environment that changed
   * @param {function(number, object): void} onLaw called with a panel and its law's options
   */
  constructor(welcome, onChange, onEnvironment, onLaw) {
    this.trained = welcome.trained;
    this.suitable = new SuitableControllers(welcome);
    this.#welcome = welcome;
    this.#onChange = onChange;
    this.environment = new EnvironmentControls(welcome.bodies, onEnvironment);
    this.laws = MENUS.map((id, panel) => new LawControls(id, welcome, (options) => onLaw(panel, options)));
    for (const id of MENUS)
      byId(id).onchange = byId(`${id}-seed`).onchange = () => this.#choose(id, this.#readController(id));
    this.scenarios = new ScenarioMenu(
      welcome.scenarios,
      (scenario) => onChange(this.suitable.changeScenario(this.#shown, scenario)),
      (options) => onChange({ options }),
    );
    for (const id of NUMBER_FIELDS) {
      byId(id).onchange = () => {
        if (byId(id).value !== "" && byId(id).reportValidity()) onChange({ [id]: byId(id).valueAsNumber });
      };
    }
    byId("radius_rule").onchange = () => onChange({ radius_rule: byId("radius_rule").value });
    const slider = byId("agents-slider");
    slider.oninput = () => {
      byId("agents").value = sliderToAgents(slider.valueAsNumber);
    };
    slider.onchange = () => onChange({ agents: sliderToAgents(slider.valueAsNumber) });
    byId("another").onclick = () => onChange({ seed: byId("seed").valueAsNumber + 1 });
    byId("setting").onsubmit = (event) => event.preventDefault();
  }

  /**
   * Show a setting; no callback is called.
   * @param {object} setting
   * @param {object} scenarioDefaults values of fields that are null in the setting
   */
  show(setting, scenarioDefaults) {
    this.#shown = setting;
    this.#fillMenus(setting.scenario);
    const shared = this.#listSharedOptions(setting);
    this.scenarios.show(setting, shared);
    this.environment.show(setting.environment);
    for (const id of [...NUMBER_FIELDS, "radius_rule"]) byId(id).value = setting[id] ?? scenarioDefaults[id] ?? "";
    byId("agents-slider").value = agentsToSlider(setting.agents);
    MENUS.forEach((id, panel) => {
      const [, network, seed] = (setting[id] ?? "").match(/^(.*?)(?::(\d+))?$/);
      byId(id).value = network;
      const seeds = this.trained[network] ?? [];
      fillSelect(byId(`${id}-seed`), [["", seeds.map((each) => [String(each), `seed ${each}`])]]);
      byId(`${id}-seed`).value = seed ?? "0";
      byId(`${id}-seed`).hidden = seeds.length < 2;
      this.laws[panel].show(setting[id], setting[`${id}_options`], shared);
      const offer = this.suitable.makeOffer(setting.scenario, setting[id]);
      showOffer(byId(`${id}-offer`), offer, (controller) => this.#choose(id, controller));
    });
    byId("orbit").checked = setting.orbit ?? scenarioDefaults.orbit ?? false;
  }

  /** Return the speed at which a scenario is shown unless the user chooses another: slow motion unless it is long. */
  chooseSpeed(scenario) {
    return this.#welcome.scenarios.find(({ name }) => name === scenario)?.is_long ? 1 : DEFAULT_LOOK.speed;
  }

  /** Report a controller, with its default options, for a menu; null for none. */
  #choose(id, controller) {
    this.#onChange({ [id]: controller, [`${id}_options`]: {} });
  }

  /** Fill the menus of controllers, those that suit the scenario first; nothing if it is the same as before. */
  #fillMenus(scenario) {
    if (scenario === this.#menuScenario) return;
    this.#menuScenario = scenario;
    const { trained, laws, weights } = this.#welcome;
    const suitable = this.suitable.list(scenario);
    const others = (names) => makeChoices(names.filter((name) => !suitable.includes(name)));
    for (const id of MENUS) {
      fillSelect(byId(id), [
        ["", id === "compare" ? [["", "None"]] : []],
        [`For ${formatName(scenario).toLowerCase()}`, makeChoices(suitable)],
        ["Trained", others(Object.keys(trained))],
        ["Laws", others(laws.map(({ name }) => name))],
        ["Files", makeChoices(weights)],
      ]);
    }
  }

  /** Return the scenario's options that a law of the setting has, too: the law's inputs set both. */
  #listSharedOptions(setting) {
    const { scenarios, laws } = this.#welcome;
    const scenario = scenarios.find(({ name }) => name === setting.scenario);
    const chosen = laws.filter(({ name }) => MENUS.some((id) => setting[id] === name));
    const lawOptions = chosen.flatMap(({ options }) => options.map(({ name }) => name));
    return (scenario?.shared_options ?? []).filter((name) => lawOptions.includes(name));
  }

  /** Return the controller that a menu selects, with :SEED after a network with another seed than 0; null if none. */
  #readController(id) {
    const network = byId(id).value;
    if (!network) return null;
    // The seed menu may be empty, or belong to the previously selected network.
    const seed = Number(byId(`${id}-seed`).value);
    return seed > 0 && this.trained[network]?.includes(seed) ? `${network}:${seed}` : network;
  }
}

/** Show the display options in the form; a speed that the menu lacks is added to it. */
export function showLook({ speed, edges, trails }) {
  [byId("edges").checked, byId("trails").checked] = [edges, trails];
  const options = [...byId("speed").options].map(({ value }) => Number(value));
  if (!options.includes(speed)) byId("speed").append(new Option(`${speed}×`, speed));
  byId("speed").value = speed;
}

const makeChoices = (names) => names.map((name) => [name, formatControllerName(name)]);

/** Replace the options of a menu by groups [label, [[value, text], ..]]; empty groups are skipped, "" is no group. */
function fillSelect(select, groups) {
  select.replaceChildren();
  for (const [label, options] of groups) {
    if (!options.length) continue;
    const parent = label ? make("optgroup", { label }) : select;
    for (const [value, text] of options) parent.append(new Option(text, value));
    if (parent !== select) select.append(parent);
  }
}

/** Convert a position of the logarithmic slider to a number of agents with two significant digits. */
function sliderToAgents(position) {
  const exact = MIN_AGENTS * (MAX_AGENTS / MIN_AGENTS) ** position;
  const unit = 10 ** Math.max(Math.floor(Math.log10(exact)) - 1, 0);
  return Math.min(Math.max(Math.round(exact / unit) * unit, MIN_AGENTS), MAX_AGENTS);
}

const agentsToSlider = (agents) => Math.log(agents / MIN_AGENTS) / Math.log(MAX_AGENTS / MIN_AGENTS);
