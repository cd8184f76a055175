/** What the page writes about the flock: titles, numbers, curves. */

import { title } from "./controls.js";
import { byId, make } from "./dom.js";
import { flockSize } from "./frames.js";
import { METRICS, Plot } from "./plots.js";

const TITLE_PX = 8;

export class Display {
  #plots = METRICS.map((metric, index) => new Plot(byId("plots"), metric, index));

  /**
   * Name the panels.
   * @param {string[]} names of the controllers
   * @param {function(number): void} showAll what the button of a panel does in which nobody is in sight
   */
  begin(names, showAll) {
    byId("unseen").replaceChildren(
      ...names.map((_, i) => {
        const button = make("button", { onclick: () => showAll(i) }, "Show all");
        return make("p", { hidden: true }, "Everybody is out of sight.", button);
      }),
    );
    byId("titles").replaceChildren(
      ...names.map((name, i) => make("span", { className: `panel-${i}` }, title(name), make("small"))),
    );
    byId("titles").dataset.panels = names.length;
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
