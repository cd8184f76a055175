/** What the page writes about the flock: titles, numbers, curves. */

import { title } from "./controls.js";
import { byId, make } from "./dom.js";
import { flockSize } from "./frames.js";
import { METRICS, Plot } from "./plots.js";

export class Display {
  #plots = METRICS.map((metric, index) => new Plot(byId("plots"), metric, index));

  /** Name the panels. */
  begin(names) {
    byId("titles").replaceChildren(
      ...names.map((name, i) => make("span", { className: `panel-${i}` }, title(name), make("small"))),
    );
    byId("titles").dataset.panels = names.length;
  }

  /** Put the titles above their panels. */
  place(viewports) {
    viewports.forEach(({ x, y, width }, i) => {
      const { style } = byId("titles").children[i];
      style.left = `${x + width / 2}px`;
      style.top = `${y + 14}px`;
    });
  }

  /** Tell how far apart lines of the grid are, in communication radii. */
  tellGrid(radii) {
    byId("scale").textContent = `grid: ${radii === 1 ? "" : radii < 1 ? `1/${1 / radii} ` : `${radii} `}R`;
  }

  /** Write the numbers of a frame, and draw the curves up to it. */
  show({ time, panels }, history, duration) {
    byId("time").textContent =
      duration === null ? `${time.toFixed(2)} s` : `${time.toFixed(2)} / ${duration.toFixed(2)} s`;
    panels.forEach((panel, i) => {
      byId("titles").children[i].lastChild.textContent = `${flockSize(panel).toLocaleString("en")} agents`;
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
}
