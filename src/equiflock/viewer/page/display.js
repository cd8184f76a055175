/** What the page writes about the flock: titles, numbers, curves. */

import { title } from "./controls.js";
import { byId, make } from "./dom.js";
import { FAILURES, failedAgents, flockSize, groupsOf } from "./frames.js";
import { PALETTES } from "./palettes.js";
import { METRICS, Plot } from "./plots.js";
import { written } from "./scenarios.js";

const TITLE_PX = 8;

export class Display {
  #plots = METRICS.map((metric, index) => new Plot(byId("plots"), metric, index));

  #flights = [];
  /** What the legend tells of groups, and in which theme. */
  #legend = "";
  /** What it tells of failures. */
  #failed = "";

  /**
   * Name the panels.
   * @param {{controller: string, scenario: string}[]} flights one for each panel; the scenario may be unknown: ""
   * @param {function(number): void} showAll what the button of a panel does in which nobody is in sight
   */
  begin(flights, showAll) {
    this.#flights = flights;
    byId("unseen").replaceChildren(
      ...flights.map((_, i) => {
        const button = make("button", { onclick: () => showAll(i) }, "Show all");
        return make("p", { hidden: true }, "Everybody is out of sight.", button);
      }),
    );
    byId("titles").replaceChildren(
      ...flights.map(({ controller }, i) =>
        make("span", { className: `panel-${i}` }, title(controller), make("small")),
      ),
    );
    byId("titles").dataset.panels = flights.length;
  }

  /** Put the titles above their panels, clear of what is in the corners, and the rest into their middle. */
  place(viewports) {
    viewports.forEach(({ x, y, width, height }, i) => {
      const left = `${x + width / 2}px`;
      // What is in the corners stands in the style sheet.
      const maxWidth = `calc(${width}px - 2 * var(--corner))`;
      Object.assign(byId("titles").children[i].style, { left, top: `${y + TITLE_PX}px`, maxWidth });
      Object.assign(byId("unseen").children[i].style, { left, top: `${y + 0.4 * height}px`, maxWidth });
    });
  }

  /** Say of a panel whether anybody is in sight. */
  tellSight(panel, seen) {
    byId("unseen").children[panel].hidden = seen;
  }

  /** Tell how far apart lines of the grid are, in communication radii. */
  tellGrid(radii) {
    byId("scale").textContent = `grid: ${radii === 1 ? "" : radii < 1 ? `1/${1 / radii} ` : `${radii} `}R`;
  }

  /** Write the numbers of a frame, and draw the curves up to it. */
  show({ time, panels }, history, duration, theme) {
    this.#tellGroups(groupsOf(panels[0]), PALETTES[theme].groups);
    this.#tellFailed(failedAgents(panels[0]));
    byId("time").textContent =
      duration === null ? `${time.toFixed(2)} s` : `${time.toFixed(2)} / ${duration.toFixed(2)} s`;
    panels.forEach((panel, i) => {
      const { scenario } = this.#flights[i];
      const failed = failedAgents(panel).reduce((sum, count) => sum + count);
      const agents = `${flockSize(panel).toLocaleString("en")} agents`;
      const size = failed ? `${agents}, ${failed.toLocaleString("en")} failed` : agents;
      byId("titles").children[i].lastChild.textContent = scenario ? `${written(scenario)}, ${size}` : size;
    });
    const style = getComputedStyle(document.documentElement);
    const [faint, grid, ...series] = ["faint", "line", "first", "second"].map((name) =>
      style.getPropertyValue(`--${name}`).trim(),
    );
    for (const plot of this.#plots) {
      plot.tell(panels);
      plot.draw(history, time, { faint, grid, series });
    }
  }

  /** Explain how agents that have failed look, and tell how many they are. */
  #tellFailed(counts) {
    const told = counts.join();
    if (told === this.#failed) return;
    this.#failed = told;
    byId("failed").hidden = counts.every((count) => count === 0);
    byId("failed").replaceChildren(
      ...FAILURES.map((kind, k) => [kind, counts[k]])
        .filter(([, count]) => count)
        .map(([kind, count]) => make("span", {}, make("i", { className: kind }), `${count} ${kind}`)),
    );
  }

  /** Explain the colours: of headings or, where there are several groups, of groups. */
  #tellGroups(groups, colours) {
    const legend = `${groups} ${colours}`;
    if (legend === this.#legend) return;
    this.#legend = legend;
    const several = groups.length > 1;
    byId("compass").hidden = several;
    byId("groups").hidden = !several;
    byId("groups").replaceChildren(
      ...colours.slice(0, groups.length).map((colour, k) => {
        const dot = make("i");
        dot.style.background = colour;
        return make("span", {}, dot, `group ${groups[k]}`);
      }),
    );
  }
}
