/** What the page says about saved flights. */

import { title } from "./controls.js";
import { byId, make } from "./dom.js";

/** Show what belongs to saved flights, with a choice among so many flocks, or what belongs to live ones, if none. */
export function offerFlocks(flocks) {
  document.body.classList.toggle("saved", flocks > 0);
  for (const element of document.querySelectorAll(".live")) element.hidden = flocks > 0;
  for (const element of document.querySelectorAll(".playback")) element.hidden = flocks === 0;
  byId("flock-row").hidden = flocks < 2;
  byId("flock").max = flocks - 1;
  byId("flocks").textContent = `Flock 0–${flocks - 1}`;
}

/** Begin to show a flock of saved flights. */
export function showPlayback({ curves, times, flights, dimensions, comm_radius: commRadius }, flock, screen) {
  screen.begin(flights, commRadius);
  screen.duration = times.at(-1);
  curves.times.forEach((time, i) => screen.note(time, curves.numbers[i]));
  byId("slider").max = times.length - 1;
  byId("flock").value = flock;
  const lines = flights.map(({ controller, agents, ending }) => {
    const told = `${title(controller)}, ${agents.toLocaleString("en")} agents`;
    return ending ? `${told}: ${ending}` : told;
  });
  if (dimensions === 3) lines.push("seen from above");
  byId("played").replaceChildren(...lines.map((text) => make("span", {}, text)));
}
