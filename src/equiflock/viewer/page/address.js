/** The page's address, which holds the whole setting: `#scenario=obstacles:sides=48&agents=200&…`. */

const CONTROLLERS = ["controller", "compare"];
const TEXT_FIELDS = [...CONTROLLERS, "radius_rule"];
const NUMBER_FIELDS = ["agents", "seed", "comm_radius", "time_step"];
const BOOLEAN_FIELDS = ["edges", "trails"];
/** Fields of the environment; an address holds those that differ from the default. */
const ENVIRONMENT_FIELDS = ["packet_loss", "delay", "noise", "body", "max_acceleration", "max_turn_rate", "lag"];
const DEFAULT_BODY = "double-integrator";
/** Former keys, which old links still have. */
const FORMER_KEYS = { spread: "radius_rule", loss: "packet_loss" };
/** Words with a value of another type, as after a scenario's name on the command line. */
const LITERALS = { true: true, false: false, none: null };
/** Characters that need no escape after the # of an address. */
const UNESCAPED = /%(?:3A|3D|2C|3B)/g;

/** Default display options, which the server does not know. */
export const DEFAULT_LOOK = { speed: 0.25, edges: false, trails: true };
/** Range of the speed in an address. */
const MIN_SPEED = 0.01,
  MAX_SPEED = 10;

/**
 * Parse an address. Setting fields that it lacks come from the server's initial setting, display options from
 * DEFAULT_LOOK. Values are not validated, except the speed; the server refuses wrong ones.
 * @param {string} hash with or without #; keys of former versions are understood
 * @param {object} initial the server's initial setting
 * @param {function(string): string} chooseController returns the controller of a scenario for an address without one
 * @param {function(string): number} chooseSpeed returns the speed of a scenario for an address without one
 * @returns {{setting: object, look: {speed: number, edges: boolean, trails: boolean}, flock: number}}
 */
export function readAddress(
  hash,
  initial,
  chooseController = () => initial.controller,
  chooseSpeed = () => DEFAULT_LOOK.speed,
) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  for (const [former, key] of Object.entries(FORMER_KEYS))
    if (given.has(former) && !given.has(key)) given.set(key, given.get(former));
  const setting = { ...initial, ...(given.has("scenario") && readScenario(given.get("scenario"))) };
  if (given.has("scenario") && !given.has("controller") && initial.controller === chooseController(initial.scenario))
    Object.assign(setting, { controller: chooseController(setting.scenario), controller_options: {} });
  for (const key of TEXT_FIELDS) if (given.has(key)) setting[key] = given.get(key) || null;
  // Options may follow the name of a law; the server separates them.
  for (const key of CONTROLLERS) if (given.has(key)) setting[`${key}_options`] = {};
  for (const key of NUMBER_FIELDS) if (given.has(key)) setting[key] = readValue(given.get(key));
  if (given.has("orbit")) setting.orbit = given.get("orbit") === "1";
  if (given.has("disks")) setting.disks = readDisks(given.get("disks"));
  setting.environment = { ...initial.environment };
  for (const key of ENVIRONMENT_FIELDS) if (given.has(key)) setting.environment[key] = readValue(given.get(key));
  const look = { ...DEFAULT_LOOK, speed: chooseSpeed(setting.scenario) };
  const speed = Number(given.get("speed"));
  if (speed) look.speed = Math.min(Math.max(speed, MIN_SPEED), MAX_SPEED);
  for (const key of BOOLEAN_FIELDS) if (given.has(key)) look[key] = given.get(key) === "1";
  return { setting, look, flock: Number(given.get("flock")) || 0 };
}

/**
 * Format an address, from # on, of the display options and of the setting or, if `playback` is true, the flock of saved
 * flights. Null fields, the scenario's choice, and default values of the environment are omitted; disks are rounded to
 * 0.001.
 */
export function writeAddress({ setting, look, flock }, playback) {
  const given = new URLSearchParams();
  if (playback) {
    given.set("flock", flock);
  } else {
    given.set("scenario", formatWithOptions(setting.scenario, setting.options));
    for (const key of CONTROLLERS) given.set(key, formatWithOptions(setting[key] ?? "", setting[`${key}_options`]));
    for (const key of [...NUMBER_FIELDS, "radius_rule"]) if (setting[key] !== null) given.set(key, setting[key]);
    if (setting.orbit !== null) given.set("orbit", Number(setting.orbit));
    for (const key of ENVIRONMENT_FIELDS) {
      const value = setting.environment[key];
      if (value && value !== DEFAULT_BODY) given.set(key, value);
    }
    if (setting.disks.length)
      given.set("disks", setting.disks.map(({ x, y, radius }) => [x, y, radius].map(roundCoordinate)).join(";"));
  }
  given.set("speed", look.speed);
  for (const key of BOOLEAN_FIELDS) given.set(key, Number(look[key]));
  return `#${given.toString().replace(UNESCAPED, decodeURIComponent)}`;
}

/** Parse a scenario with options, such as `obstacles:sides=48:leaders=3`, into {scenario, options}. */
function readScenario(text) {
  const [scenario, ...parts] = text.split(":");
  const options = parts.map((part) => part.split("=")).map(([name, value]) => [name, readValue(value ?? "")]);
  return { scenario, options: Object.fromEntries(options) };
}

/** Format a name with options, such as `obstacles:sides=48`; null becomes none. */
function formatWithOptions(name, options) {
  const parts = Object.entries(options).map(([key, value]) => `${key}=${value ?? "none"}`);
  return [name, ...parts].join(":");
}

/** Convert a text to a number, true, false or null (none), or return the text itself. */
function readValue(text) {
  if (Object.hasOwn(LITERALS, text)) return LITERALS[text];
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** Parse disks such as `1,2,0.5;3,4,0.5` into a list of {x, y, radius}; missing numbers are undefined. */
function readDisks(text) {
  return text
    .split(";")
    .filter(Boolean)
    .map((disk) => {
      const [x, y, radius] = disk.split(",").map(Number);
      return { x, y, radius };
    });
}

const roundCoordinate = (number) => Number(number.toFixed(3));
