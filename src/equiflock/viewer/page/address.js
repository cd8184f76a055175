/** The page's address holds the whole setting: `#scenario=leaders&agents=200&…`. */

const WORDS = ["scenario", "controller", "compare", "spread"];
const NUMBERS = ["agents", "seed", "radius", "time_step", "leaders", "sides"];

/** How things look; the server does not need to know. */
export const LOOK = { speed: 0.25, edges: false, trails: true };

/** What an address says, on top of what the server begins with. */
export function readAddress(hash, usual) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const setting = { ...usual };
  for (const key of WORDS) if (given.has(key)) setting[key] = given.get(key) || null;
  for (const key of NUMBERS) if (given.has(key)) setting[key] = Number(given.get(key));
  if (given.has("orbit")) setting.orbit = given.get("orbit") === "1";
  if (given.has("disks")) setting.disks = readDisks(given.get("disks"));
  const look = { ...LOOK };
  if (given.has("speed")) look.speed = Math.min(Math.max(Number(given.get("speed")) || LOOK.speed, 0.01), 10);
  for (const key of ["edges", "trails"]) if (given.has(key)) look[key] = given.get(key) === "1";
  return { setting, look, flock: Number(given.get("flock")) || 0 };
}

/** The address of a setting, or of a flock of saved flights. */
export function writeAddress({ setting, look, flock }, replaying) {
  const given = new URLSearchParams();
  if (replaying) {
    given.set("flock", flock);
  } else {
    for (const key of [...WORDS, ...NUMBERS]) given.set(key, setting[key] ?? "");
    given.set("orbit", Number(setting.orbit));
    if (setting.disks.length)
      given.set("disks", setting.disks.map(({ x, y, radius }) => [x, y, radius].map(short)).join(";"));
  }
  given.set("speed", look.speed);
  for (const key of ["edges", "trails"]) given.set(key, Number(look[key]));
  return `#${given}`;
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
