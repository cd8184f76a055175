/** Saved flights: the choice of a flock, and the description of what is played. */

import { formatControllerName } from "./player/names.js";
import { byId, make } from "./player/dom.js";

/**
 * Show the controls for saved flights, with a choice if there are several flocks, or for live flights if `flocks` is 0.
 */
export function showFlockChoice(flocks) {
  document.body.classList.toggle("saved", flocks > 0);
  for (const element of document.querySelectorAll(".live")) element.hidden = flocks > 0;
  for (const element of document.querySelectorAll(".playback")) element.hidden = flocks === 0;
  byId("flock-row").hidden = flocks < 2;
  byId("flock").max = flocks - 1;
  byId("flocks").textContent = `Flock 0–${flocks - 1}`;
}

/**
 * Start showing a flock of saved flights: titles, curves of the whole flight, slider and summary.
 * @param {object} playback the server's description of it
 * @param {number} flock its index
 * @param {import("./screen.js").Screen} screen
 */
export function showPlayback({ curves, times, flights, dimensions, comm_radius: commRadius }, flock, screen) {
  screen.begin(flights, commRadius);
  screen.duration = times.at(-1);
  curves.times.forEach((time, i) => screen.addMetrics(time, curves.metric_values[i]));
  byId("slider").max = times.length - 1;
  byId("flock").value = flock;
  const lines = flights.map(({ controller, agents, ending }) => {
    const summary = `${formatControllerName(controller)}, ${agents.toLocaleString("en")} agents`;
    return ending ? `${summary}: ${ending}` : summary;
  });
  if (dimensions === 3) lines.push("seen from above");
  byId("played").replaceChildren(...lines.map((text) => make("span", {}, text)));
}
