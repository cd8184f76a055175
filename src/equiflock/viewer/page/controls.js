/** The form: a setting in, changes of it out. */

import { byId, make } from "./dom.js";
import { LawControls } from "./laws.js";
import { ScenarioMenu } from "./scenarios.js";
import { WorldControls } from "./world.js";

const FEWEST = 3,
  MOST = 10000;
/** The menus of controllers, one for each panel. */
const MENUS = ["controller", "compare"];
/** Fields of the setting that have a box of their own, whatever the scenario. */
const NUMBERS = ["agents", "seed", "comm_radius", "time_step"];

/** Names as people write them. */
const PRETTY = {
  tanner: "Tanner, centralized",
  "tanner-dynamic": "Tanner, dynamic",
  "tanner-fixed": "Tanner, fixed",
  tdagnn: "TDAGNN",
  "tdagnn-tf": "TDAGNN-TF",
  "tdagnn-tf-mean": "TDAGNN-TF-mean",
  etdagnn: "ETDAGNN",
};

/** A controller's name for people: `etdagnn:3` is ETDAGNN, seed 3, and `cucker-smale:beta=1` Cucker-Smale, beta 1. */
export function title(name) {
  const [, head, options] = name.match(/^([\w-]+)(?::(.*))?$/) ?? [];
  if (!head) return name.split("/").at(-1); // a file
  const pretty = PRETTY[head] ?? spelled(head);
  if (!options) return pretty;
  const told = /^\d+$/.test(options) ? `seed ${options}` : options.replaceAll(":", ", ").replaceAll("=", " ");
  return `${pretty}, ${told}`;
}

/** The name of a law with capitals, such as those of its authors. */
const spelled = (name) =>
  name.replace(/-local$/, ", local").replaceAll(/(?<=^|-)[a-z]/g, (letter) => letter.toUpperCase());

export class Controls {
  /**
   * @param {object} welcome what the server offers
   * @param {function(object): void} onChange called with the fields of the setting that were changed
   * @param {function(object): void} onWorld called with the fields of its world that were changed
   * @param {function(number, object): void} onLaw called with a panel and the options of its law
   */
  constructor(welcome, onChange, onWorld, onLaw) {
    this.trained = welcome.trained;
    this.world = new WorldControls(welcome.bodies, onWorld);
    this.laws = MENUS.map((id, panel) => new LawControls(id, welcome.laws, (options) => onLaw(panel, options)));
    for (const id of MENUS) {
      const none = id === "compare" ? [["", "nobody"]] : [];
      fill(byId(id), [
        ["", none],
        ["Trained", pairs(Object.keys(welcome.trained))],
        ["Laws", pairs(welcome.laws.map(({ name }) => name))],
        ["Files", pairs(welcome.weights)],
      ]);
      const choose = () => onChange({ [id]: this.#chosen(id), [`${id}_options`]: {} });
      byId(id).onchange = byId(`${id}-seed`).onchange = choose;
    }
    this.scenarios = new ScenarioMenu(welcome.scenarios, onChange);
    for (const id of NUMBERS) {
      byId(id).onchange = () => {
        if (byId(id).value !== "" && byId(id).reportValidity()) onChange({ [id]: byId(id).valueAsNumber });
      };
    }
    byId("spread").onchange = () => onChange({ spread: byId("spread").value });
    const slider = byId("agents-slider");
    slider.oninput = () => {
      byId("agents").value = fromSlider(slider.valueAsNumber);
    };
    slider.onchange = () => onChange({ agents: fromSlider(slider.valueAsNumber) });
    byId("another").onclick = () => onChange({ seed: byId("seed").valueAsNumber + 1 });
    byId("setting").onsubmit = (event) => event.preventDefault();
  }

  /**
   * Show a setting.
   * @param {object} setting
   * @param {object} chosen what the scenario has chosen where the setting has null
   */
  show(setting, chosen) {
    this.scenarios.show(setting);
    this.world.show(setting.world);
    for (const id of [...NUMBERS, "spread"]) byId(id).value = setting[id] ?? chosen[id] ?? "";
    byId("agents-slider").value = toSlider(setting.agents);
    MENUS.forEach((id, panel) => {
      const [, network, seed] = (setting[id] ?? "").match(/^(.*?)(?::(\d+))?$/);
      byId(id).value = network;
      const seeds = this.trained[network] ?? [];
      fill(byId(`${id}-seed`), [["", seeds.map((each) => [String(each), `seed ${each}`])]]);
      byId(`${id}-seed`).value = seed ?? "0";
      byId(`${id}-seed`).hidden = seeds.length < 2;
      this.laws[panel].show(setting[id], setting[`${id}_options`]);
    });
    byId("orbit").checked = setting.orbit ?? chosen.orbit ?? false;
  }

  #chosen(id) {
    const network = byId(id).value;
    if (!network) return null;
    // The seeds in the box may be those of the network before, or none.
    const seed = Number(byId(`${id}-seed`).value);
    return seed > 0 && this.trained[network]?.includes(seed) ? `${network}:${seed}` : network;
  }
}

/** Show how the flight is looked at. */
export function showLook({ speed, edges, trails }) {
  [byId("edges").checked, byId("trails").checked] = [edges, trails];
  const options = [...byId("speed").options].map(({ value }) => Number(value));
  if (!options.includes(speed)) byId("speed").append(new Option(`${speed}×`, speed));
  byId("speed").value = speed;
}

const pairs = (names) => names.map((name) => [name, title(name)]);

function fill(select, groups) {
  select.replaceChildren();
  for (const [label, options] of groups) {
    if (!options.length) continue;
    const parent = label ? make("optgroup", { label }) : select;
    for (const [value, text] of options) parent.append(new Option(text, value));
    if (parent !== select) select.append(parent);
  }
}

/** The slider is logarithmic; its numbers are round. */
function fromSlider(place) {
  const exact = FEWEST * (MOST / FEWEST) ** place;
  const unit = 10 ** Math.max(Math.floor(Math.log10(exact)) - 1, 0);
  return Math.min(Math.max(Math.round(exact / unit) * unit, FEWEST), MOST);
}

const toSlider = (agents) => Math.log(agents / FEWEST) / Math.log(MOST / FEWEST);
