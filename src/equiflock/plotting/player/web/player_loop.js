/** One loop for all players of a page: it draws those in sight, and gives WebGL contexts to those nearby. */

/** Players with a WebGL context: browsers take the oldest away beyond 8 (phones) or 16. */
const MAX_CONTEXTS = 6;
/** Players closer to the window than this get a context. */
const NEAR_PX = 400;
const ASSIGN_INTERVAL_MS = 250;

const players = new Set();
/** Players by their visible share, from 0 to 1. */
const visibleShares = new Map();
let lastAssignment = -Infinity;
let lastTick = 0;
let isRunning = false;

/** Whether the page is a frame of another, as in a notebook: only the observer then knows what is in sight. */
const isFramed = window !== window.top;

const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, intersectionRatio } of entries) visibleShares.set(target, intersectionRatio);
    assignContexts(); // the loop rests in a frame out of sight
  },
  { threshold: [0, 0.01, 0.5] },
);

/** Let the loop draw a player while it is in sight. */
export function addToLoop(player) {
  players.add(player);
  observer.observe(player.element.firstChild); // the picture
  if (!isRunning) requestAnimationFrame(tick);
  isRunning = true;
}

/** Show all players of the page in a theme, "dark" or "light", and tell the page so by an event, `equiflock-theme`. */
export function setThemeOfAll(theme) {
  for (const player of players) player.theme = theme;
  dispatchEvent(new CustomEvent("equiflock-theme", { detail: theme }));
}

/** Advance the timelines with a player in sight, once each, and draw these players. */
function tick(now) {
  requestAnimationFrame(tick);
  const seconds = (now - lastTick) / 1000;
  lastTick = now;
  if (now - lastAssignment > ASSIGN_INTERVAL_MS) {
    lastAssignment = now;
    assignContexts();
  }
  const shown = [...players].filter((player) => shareOf(player) > 0 && player.isLive);
  for (const player of shown) if (shareOf(player) >= 0.5) player.see();
  for (const timeline of new Set(shown.map((player) => player.timeline))) timeline.advance(seconds);
  for (const player of shown) player.draw(now, seconds);
}

const shareOf = (player) => visibleShares.get(player.element.firstChild) ?? 0;

/** Give contexts to the players nearest to the middle of the window, and take them from the others. */
function assignContexts() {
  const middle = innerHeight / 2;
  const distances = new Map();
  for (const player of players) {
    const { top, bottom } = player.element.firstChild.getBoundingClientRect();
    const isNear = isFramed ? shareOf(player) > 0 : top < innerHeight + NEAR_PX && bottom > -NEAR_PX;
    if (isNear && bottom > top) distances.set(player, Math.abs((top + bottom) / 2 - middle));
  }
  const nearest = [...distances.keys()].sort((a, b) => distances.get(a) - distances.get(b)).slice(0, MAX_CONTEXTS);
  for (const player of players) if (player.isLive && !nearest.includes(player)) player.sleep();
  for (const player of nearest) if (!player.isLive) player.wake();
}
