/** The page's address holds the whole setting: `#scenario=obstacles:sides=48&agents=200&…`. */

const CONTROLLERS = ["controller", "compare"];
const WORDS = [...CONTROLLERS, "spread"];
const NUMBERS = ["agents", "seed", "comm_radius", "time_step"];
const SWITCHES = ["edges", "trails"];
/** Fields of the world; an address has those that are out of the ordinary. */
const WORLD = ["loss", "delay", "noise", "body", "max_acceleration", "max_turn_rate", "lag"];
const USUAL_BODY = "double-integrator";
/** Words that stand for something else, as after a scenario's name on the command line. */
const CONSTANTS = { true: true, false: false, none: null };
/** Characters that need no escape after the # of an address. */
const PLAIN = /%(?:3A|3D|2C|3B)/g;

/** How things look; the server does not need to know. */
export const LOOK = { speed: 0.25, edges: false, trails: true };

/**
 * What an address says, on top of what the server begins with.
 * @param {string} hash
 * @param {object} usual the setting that the server begins with
 */
export function readAddress(hash, usual) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const setting = { ...usual, ...(given.has("scenario") && readScenario(given.get("scenario"))) };
  for (const key of WORDS) if (given.has(key)) setting[key] = given.get(key) || null;
  // Options follow the name of a law, too; the server tells them apart.
  for (const key of CONTROLLERS) if (given.has(key)) setting[`${key}_options`] = {};
  for (const key of NUMBERS) if (given.has(key)) setting[key] = readValue(given.get(key));
  if (given.has("orbit")) setting.orbit = given.get("orbit") === "1";
  if (given.has("disks")) setting.disks = readDisks(given.get("disks"));
  setting.world = { ...usual.world };
  for (const key of WORLD) if (given.has(key)) setting.world[key] = readValue(given.get(key));
  const look = { ...LOOK };
  if (given.has("speed")) look.speed = Math.min(Math.max(Number(given.get("speed")) || LOOK.speed, 0.01), 10);
  for (const key of SWITCHES) if (given.has(key)) look[key] = given.get(key) === "1";
  return { setting, look, flock: Number(given.get("flock")) || 0 };
}

/** The address of a setting, or of a flock of saved flights. What is null is the scenario's choice, and not in it. */
export function writeAddress({ setting, look, flock }, playback) {
  const given = new URLSearchParams();
  if (playback) {
    given.set("flock", flock);
  } else {
    given.set("scenario", withOptions(setting.scenario, setting.options));
    for (const key of CONTROLLERS) given.set(key, withOptions(setting[key] ?? "", setting[`${key}_options`]));
    for (const key of [...NUMBERS, "spread"]) if (setting[key] !== null) given.set(key, setting[key]);
    if (setting.orbit !== null) given.set("orbit", Number(setting.orbit));
    for (const key of WORLD) {
      const value = setting.world[key];
      if (value && value !== USUAL_BODY) given.set(key, value);
    }
    if (setting.disks.length)
      given.set("disks", setting.disks.map(({ x, y, radius }) => [x, y, radius].map(short)).join(";"));
  }
  given.set("speed", look.speed);
  for (const key of SWITCHES) given.set(key, Number(look[key]));
  return `#${given.toString().replace(PLAIN, decodeURIComponent)}`;
}

/** A scenario with its options as on the command line: `obstacles:sides=48:leaders=3`. */
function readScenario(text) {
  const [scenario, ...parts] = text.split(":");
  const options = parts.map((part) => part.split("=")).map(([name, value]) => [name, readValue(value ?? "")]);
  return { scenario, options: Object.fromEntries(options) };
}

function withOptions(name, options) {
  const parts = Object.entries(options).map(([key, value]) => `${key}=${value ?? "none"}`);
  return [name, ...parts].join(":");
}

/** A number, true, false or null, or else the word itself, for the server to say what is wrong with it. */
function readValue(text) {
  if (Object.hasOwn(CONSTANTS, text)) return CONSTANTS[text];
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function readDisks(text) {
  return text
    .split(";")
    .filter(Boolean)
    .map((disk) => {
      const [x, y, radius] = disk.split(",").map(Number);
      return { x, y, radius };
    });
}

const short = (number) => Number(number.toFixed(3));
