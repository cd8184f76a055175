/** Titles, legends, metrics and curves of the flocks. */

import { formatControllerName, formatName } from "./names.js";
import { Curves } from "./curves.js";
import { make } from "./dom.js";
import { countAgents, countFailed, FAILURES, listGroups } from "./frames.js";
import { listMarkKinds } from "./marks.js";
import { PALETTES } from "./palettes.js";
import { SuccessLine } from "./success.js";

const TITLE_MARGIN_PX = 8; // css pixels above a title
const UNSEEN_TOP = 0.4; // middle of the text that all are out of view, as a share of a panel's height ..
const UNSEEN_TOP_BELOW_OUTCOME = 0.43; // .. and of narrow panels, in which outcomes take two lines

/** Titles and notes over the panels, the legends, and the plots beside them. */
export class Display {
  #root;
  #curves;
  #titles = make("div", { className: "titles", ariaHidden: "true" });
  #unseen = make("div", { className: "unseen" });
  #compass = make("div", { className: "compass", title: "The colour of a dart is its heading" });
  #marks = make("div", { className: "marks", title: "What the scenario asks for", hidden: true });
  #groups = make("div", { className: "groups", title: "The colour of a dart is its group", hidden: true });
  #failed = make("div", { className: "failed", title: "Failed agents", hidden: true });
  #lost = make("div", { className: "lost", title: "Messages that did not arrive", hidden: true }, make("i"), "lost");
  #scale = make("span", { className: "scale", title: "Distance between grid lines, in communication radii R" });

  #flights = [];
  #successLines = [];
  /** Outcomes for screen readers, as titles change too often to be read. */
  #announcement = make("p", { className: "visually-hidden", role: "status" });
  /** Kinds and colours of marks in the legend, to detect changes. */
  #markLegend = "";
  /** Groups and colours in the legend, to detect changes. */
  #groupLegend = "";
  /** Counts in the legend of failures, to detect changes. */
  #failedLegend = "";

  /**
   * Create the elements above a canvas, as its next siblings, and the plots.
   * @param {HTMLCanvasElement} canvas
   * @param {?HTMLElement} plots parent of the plots; null for none
   */
  constructor(canvas, plots) {
    this.#root = canvas.parentElement;
    const legend = make("div", { className: "legend", ariaHidden: "true" });
    legend.append(this.#compass, this.#groups, this.#marks, this.#failed, this.#lost, this.#scale);
    canvas.after(this.#titles, this.#unseen, legend, this.#announcement);
    this.#curves = plots && new Curves(plots);
  }

  /**
   * Write the titles of the panels, and create their hidden "out of view" texts with a button.
   * @param {{controller: string, title: ?string, scenario: string, overlay: ?object}[]} flights one for each panel; the
   *   title is by default the controller's, the scenario "" if unknown; overlay has group_names, and the texts of
   *   `SuccessLine`
   * @param {function(number): void} showAll called with the panel whose "Show all" button was pressed
   */
  begin(flights, showAll) {
    this.#flights = flights;
    this.#announcement.textContent = "";
    const announce = (text) => (this.#announcement.textContent = text);
    this.#successLines = flights.map(({ overlay }) => new SuccessLine(overlay ?? {}, announce));
    this.#unseen.replaceChildren(
      ...flights.map((_, i) => {
        const button = make("button", { onclick: () => showAll(i) }, "Show all");
        return make("p", { hidden: true }, "All are out of view.", button);
      }),
    );
    this.#titles.replaceChildren(
      ...flights.map(({ controller, title }, i) =>
        make("span", { className: `panel-${i}` }, title ?? formatControllerName(controller), make("small")),
      ),
    );
    this.#successLines.forEach(({ element }, i) => this.#titles.children[i].append(element));
    this.#titles.dataset.panels = flights.length;
  }

  /**
   * Position titles at the top of their panels (css pixels), between the corners, and "out of view" texts in the
   * middle: in shares of the picture, which a printer may scale.
   */
  positionTitles(viewports) {
    const unseenTop = viewports.length > 1 ? UNSEEN_TOP_BELOW_OUTCOME : UNSEEN_TOP;
    const { clientWidth, clientHeight } = this.#root;
    const [across, down] = [clientWidth, clientHeight].map((size) => (pixels) => `${(100 * pixels) / (size || 1)}%`);
    viewports.forEach(({ x, y, width, height }, i) => {
      const left = across(x + width / 2);
      // The style sheet defines the width of the corners.
      const maxWidth = `calc(${across(width)} - 2 * var(--corner))`;
      Object.assign(this.#titles.children[i].style, { left, top: `calc(${down(y)} + ${TITLE_MARGIN_PX}px)`, maxWidth });
      Object.assign(this.#unseen.children[i].style, { left, top: down(y + unseenTop * height), maxWidth });
    });
  }

  /** Hide the "out of view" text of a panel if an agent is visible, and show it otherwise. */
  showVisibility(panel, isVisible) {
    this.#unseen.children[panel].hidden = isVisible;
  }

  /** Show or hide the legend of lost messages. */
  showLostLegend(isShown) {
    this.#lost.hidden = !isShown;
  }

  /** Show the grid spacing, a power of 2 in communication radii, such as 1/4 R. */
  showGridSpacing(radii) {
    this.#scale.textContent = `grid: ${radii === 1 ? "" : radii < 1 ? `1/${1 / radii} ` : `${radii} `}R`;
  }

  /**
   * Show sizes and metrics of a frame, and draw the curves. The legends of groups and failures are those of the
   * first panel.
   * @param {{time: number, panels: object[]}} frame
   * @param {import("./history.js").History} history
   * @param {string} theme "dark" or "light"
   */
  show({ time, panels }, history, theme) {
    this.#showGroups(listGroups(panels[0]), PALETTES[theme].groups);
    this.#showMarks(listMarkKinds(panels[0]), PALETTES[theme]);
    panels.forEach((panel, i) => this.#successLines[i].show(panel));
    this.#showFailed(countFailed(panels[0]));
    panels.forEach((panel, i) => {
      const { scenario } = this.#flights[i];
      const failed = countFailed(panel).reduce((sum, count) => sum + count);
      const agents = `${countAgents(panel).toLocaleString("en")} agents`;
      const size = failed ? `${agents}, ${failed.toLocaleString("en")} failed` : agents;
      this.#titles.children[i].querySelector("small").textContent = scenario
        ? `${formatName(scenario)}, ${size}`
        : size;
    });
    const style = getComputedStyle(this.#root);
    const [ink, faint, grid, ...series] = ["ink", "faint", "line", "first", "second", "third", "fourth"].map((name) =>
      style.getPropertyValue(`--${name}`).trim(),
    );
    const metricValues = panels.map((panel) => panel.metricValues);
    this.#curves?.show(history, metricValues, time, { ink, faint, grid, series });
  }

  /** Update the legend of failed agents if their counts (in the order of FAILURES) changed; hide it if all are 0. */
  #showFailed(counts) {
    const legend = counts.join();
    if (legend === this.#failedLegend) return;
    this.#failedLegend = legend;
    this.#failed.hidden = counts.every((count) => count === 0);
    this.#failed.replaceChildren(
      ...FAILURES.map((kind, k) => [kind, counts[k]])
        .filter(([, count]) => count)
        .map(([kind, count]) => make("span", {}, make("i", { className: kind }), `${count} ${kind}`)),
    );
  }

  /** Update the legend of marks if their kinds or colours changed; hide it if there are none. */
  #showMarks(kinds, palette) {
    const legend = `${kinds} ${palette.background}`;
    if (legend === this.#markLegend) return;
    this.#markLegend = legend;
    this.#marks.hidden = !kinds.length;
    this.#marks.replaceChildren(
      ...kinds.map(([kind, text]) => {
        const icon = make("i", { className: kind });
        icon.style.color = palette[kind];
        return make("span", {}, icon, text);
      }),
    );
  }

  /** Return the name of a group, which the scenario may have given it. */
  nameGroup(group) {
    return this.#flights[0].overlay?.group_names[group] ?? `group ${group}`;
  }

  /** Update the legend of colours if it changed: the compass or, if there are several groups, a dot for each. */
  #showGroups(groups, colours) {
    const names = groups.map((group) => this.nameGroup(group));
    const legend = `${names} ${colours}`;
    if (legend === this.#groupLegend) return;
    this.#groupLegend = legend;
    const several = groups.length > 1;
    this.#compass.hidden = several;
    this.#groups.hidden = !several;
    this.#groups.replaceChildren(
      ...colours.slice(0, groups.length).map((colour, k) => {
        const dot = make("i");
        dot.style.background = colour;
        return make("span", {}, dot, names[k]);
      }),
    );
  }
}
