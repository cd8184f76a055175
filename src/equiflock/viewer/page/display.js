/** Titles, legends, metrics and curves of the flocks. */

import { formatControllerName } from "./controls.js";
import { byId, make } from "./dom.js";
import { countAgents, countFailed, FAILURES, listGroups } from "./frames.js";
import { PALETTES } from "./palettes.js";
import { METRICS, Plot } from "./plots.js";
import { formatName } from "./scenario_menu.js";

const TITLE_MARGIN_PX = 8; // css pixels above a title

export class Display {
  #plots = METRICS.map((metric, index) => new Plot(byId("plots"), metric, index));

  #flights = [];
  /** Groups and colours in the legend, to detect changes. */
  #groupLegend = "";
  /** Counts in the legend of failures, to detect changes. */
  #failedLegend = "";

  /**
   * Write the panels' titles.
   * @param {{controller: string, scenario: string}[]} flights one for each panel; scenario is "" if unknown
   * @param {function(number): void} showAll called with the panel whose "Show all" button was pressed
   */
  begin(flights, showAll) {
    this.#flights = flights;
    byId("unseen").replaceChildren(
      ...flights.map((_, i) => {
        const button = make("button", { onclick: () => showAll(i) }, "Show all");
        return make("p", { hidden: true }, "All agents are out of view.", button);
      }),
    );
    byId("titles").replaceChildren(
      ...flights.map(({ controller }, i) =>
        make("span", { className: `panel-${i}` }, formatControllerName(controller), make("small")),
      ),
    );
    byId("titles").dataset.panels = flights.length;
  }

  /** Position titles at the top of their panels, between the corners, and the "out of view" texts in the middle. */
  positionTitles(viewports) {
    viewports.forEach(({ x, y, width, height }, i) => {
      const left = `${x + width / 2}px`;
      // The style sheet defines the width of the corners.
      const maxWidth = `calc(${width}px - 2 * var(--corner))`;
      Object.assign(byId("titles").children[i].style, { left, top: `${y + TITLE_MARGIN_PX}px`, maxWidth });
      Object.assign(byId("unseen").children[i].style, { left, top: `${y + 0.4 * height}px`, maxWidth });
    });
  }

  /** Show the "out of view" text of a panel unless an agent is visible. */
  showVisibility(panel, isVisible) {
    byId("unseen").children[panel].hidden = isVisible;
  }

  /** Show the grid spacing, in communication radii. */
  showGridSpacing(radii) {
    byId("scale").textContent = `grid: ${radii === 1 ? "" : radii < 1 ? `1/${1 / radii} ` : `${radii} `}R`;
  }

  /** Show the metrics of a frame, and draw the curves. */
  show({ time, panels }, history, duration, theme) {
    this.#showGroups(listGroups(panels[0]), PALETTES[theme].groups);
    this.#showFailed(countFailed(panels[0]));
    byId("time").textContent =
      duration === null ? `${time.toFixed(2)} s` : `${time.toFixed(2)} / ${duration.toFixed(2)} s`;
    panels.forEach((panel, i) => {
      const { scenario } = this.#flights[i];
      const failed = countFailed(panel).reduce((sum, count) => sum + count);
      const agents = `${countAgents(panel).toLocaleString("en")} agents`;
      const size = failed ? `${agents}, ${failed.toLocaleString("en")} failed` : agents;
      byId("titles").children[i].lastChild.textContent = scenario ? `${formatName(scenario)}, ${size}` : size;
    });
    const style = getComputedStyle(document.documentElement);
    const [faint, grid, ...series] = ["faint", "line", "first", "second"].map((name) =>
      style.getPropertyValue(`--${name}`).trim(),
    );
    for (const plot of this.#plots) {
      plot.showValues(panels);
      plot.draw(history, time, { faint, grid, series });
    }
  }

  /** Update the legend of failed agents, with their counts. */
  #showFailed(counts) {
    const legend = counts.join();
    if (legend === this.#failedLegend) return;
    this.#failedLegend = legend;
    byId("failed").hidden = counts.every((count) => count === 0);
    byId("failed").replaceChildren(
      ...FAILURES.map((kind, k) => [kind, counts[k]])
        .filter(([, count]) => count)
        .map(([kind, count]) => make("span", {}, make("i", { className: kind }), `${count} ${kind}`)),
    );
  }

  /** Update the legend of colours: headings or, if there are several groups, groups. */
  #showGroups(groups, colours) {
    const legend = `${groups} ${colours}`;
    if (legend === this.#groupLegend) return;
    this.#groupLegend = legend;
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
