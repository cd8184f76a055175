/** The card of the inspected agent: its state, its neighbours, what it received, and why it accelerates. */

import { make } from "./player/dom.js";
import { getHopStyle } from "./player/inspection.js";
import { formatChannel, formatControllerName } from "./player/names.js";

/** Number of hops whose vectors have a column. */
const HOP_COLUMNS = 3;
const METHODS = {
  "gradient times input":
    "Gradient times input: by how much the acceleration changes per relative change of what was received, along the " +
    "commanded acceleration. Contributions and remainder sum to it.",
  terms: "The terms of the law, along the commanded acceleration: they sum to it.",
};
const REMAINDER =
  "What the contributions leave of the acceleration: a network saturates, normalizes and may have biases, so gradients " +
  "times inputs need not sum up.";

/** Shows the answers of the server about one agent. Elements stay while the agent does, so that they can be pressed. */
export class InspectionCard {
  #root;
  #title = make("h2");
  #state = make("small", { title: "Role, group if there are several, and condition" });
  #follow;
  #body = make("div");
  #actions;
  /** What the elements were built for; they are built again if it changes. */
  #key = "";
  /** Functions that update elements from an answer and the channels. */
  #updaters = [];

  /**
   * @param {HTMLElement} root
   * @param {{close: function(): void, follow: function(): void, toggleChannel: function(string): void}} actions
   */
  constructor(root, actions) {
    this.#root = root;
    this.#actions = actions;
    this.#follow = make("button", {
      type: "button",
      title: "Let the view follow this agent; F follows the flock again",
    });
    this.#follow.textContent = "Follow";
    this.#follow.onclick = actions.follow;
    const close = make("button", { type: "button", title: "End the inspection (Esc)", ariaLabel: "Close" }, "×");
    close.onclick = actions.close;
    root.replaceChildren(make("header", {}, this.#title, this.#state, this.#follow, close), this.#body);
  }

  hide() {
    this.#root.hidden = true;
    this.#key = "";
  }

  /** Say that the agent was removed. */
  showGone(id) {
    this.#open();
    this.#title.textContent = `Agent ${id}`;
    this.#state.textContent = "";
    this.#key = "";
    this.#body.replaceChildren(make("p", {}, "This agent is not in the flock. Click another one."));
  }

  setFollowing(isFollowing) {
    this.#follow.setAttribute("aria-pressed", isFollowing);
  }

  /**
   * Show an answer.
   * @param {object} answer event "watched"
   * @param {{label: string, colour: string, isShown: boolean}[]} channels of all panels
   * @param {string[]} names controllers of the panels
   * @param {string} group name of the agent's group; "" if there is only one
   */
  show(answer, channels, names, group) {
    this.#open();
    this.#title.textContent = `Agent ${answer.agent}`;
    this.#state.textContent = formatState(
      answer.panels.find((panel) => panel),
      group,
    );
    const layout = answer.panels.map((panel) => panel && [panel.channels, panel.ages?.length, describeParts(panel)]);
    const key = JSON.stringify([answer.id, layout, names]);
    if (key !== this.#key) this.#build(answer.panels, names);
    this.#key = key;
    for (const update of this.#updaters) update(answer.panels, channels);
  }

  /** Show the card; on a phone, where the sidebar scrolls as a whole, scroll to it. */
  #open() {
    if (!this.#root.hidden) return;
    this.#root.hidden = false;
    this.#root.scrollIntoView({ block: "nearest" });
  }

  #build(panels, names) {
    this.#updaters = [];
    const sections = panels.map((panel, i) => {
      const heading = make("h3", { className: `panel-${i}` }, formatControllerName(names[i]));
      heading.hidden = panels.length < 2;
      if (!panel) return make("section", {}, heading, make("p", {}, "This flight has no such agent."));
      return make("section", {}, heading, this.#buildFacts(i), ...this.#buildTables(panel, i), this.#buildReason(i));
    });
    this.#body.replaceChildren(...sections);
  }

  /** Update elements of panel i by `update(panel, channels)` whenever there is an answer. */
  #onAnswer(i, update) {
    this.#updaters.push((panels, channels) => panels[i] && update(panels[i], channels));
  }

  #buildFacts(i) {
    const list = make("dl");
    const addFact = (term, title, format) => {
      const value = make("dd");
      list.append(make("dt", { title }, term), value);
      this.#onAnswer(i, (panel) => {
        const content = format(panel);
        value.replaceChildren(...(Array.isArray(content) ? content : [content]));
      });
    };
    addFact("Speed", "Norms of the velocity and of the commanded acceleration", ({ speed, commanded }) => {
      return `${formatNumber(speed)}, acceleration ${commanded ? formatNumber(norm(commanded)) : "–"}`;
    });
    addFact("Neighbours", "Agents from which messages arrive over 1, 2, .. hops; the lines show their way", formatHops);
    addFact(
      "Age",
      "How old the messages of each hop are: each hop takes the radio's delay, a relay one step more",
      formatAges,
    );
    return list;
  }

  #buildReason(i) {
    const reason = make("p");
    this.#onAnswer(i, (panel) => {
      reason.hidden = !panel.reason;
      reason.textContent = panel.reason ? `${panel.reason[0].toUpperCase()}${panel.reason.slice(1)}.` : "";
    });
    return reason;
  }

  /** Return the table of channels and, for the terms of a law, another one. */
  #buildTables(panel, i) {
    if (!panel.observations) return [];
    const method = panel.explanation?.method;
    const isSplit = method === "gradient times input";
    const hops = Math.min(panel.observations.length, HOP_COLUMNS);
    const rows = panel.channels.map((channel, c) => this.#buildChannel(i, c, formatChannel(...channel), hops, isSplit));
    const title =
      "Norms of the vectors that the agent received, by hop: μ is a mean and Σ a sum over neighbours; press a channel to draw its arrows";
    const heads = Array.from({ length: hops }, (_, k) => make("th", { title: `Hop ${k + 1}` }, `${k + 1}`));
    const first = make("tr", {}, make("th", { title }, "Received"), ...heads);
    if (isSplit) first.append(...makeBarHeads("contribution", METHODS[method]));
    const table = make("table", {}, first, ...rows);
    if (isSplit) table.append(...this.#buildSums(i, hops, true));
    if (method !== "terms") return [table];
    const head = make("tr", {}, make("th", { title: METHODS.terms }, "Terms of the law"), ...makeBarHeads("", ""));
    const terms = panel.explanation.contributions.map(({ name }, k) => this.#buildTerm(i, name, 0, k));
    return [table, make("table", {}, head, ...terms, ...this.#buildSums(i, 0, false))];
  }

  /** Return the row of channel c: a button that draws its arrows, norms by hop and, if split, contributions by hop. */
  #buildChannel(i, c, label, hops, isSplit) {
    const swatch = make("i");
    const button = make("button", { type: "button" }, swatch, make("span", {}, label));
    button.onclick = () => this.#actions.toggleChannel(label);
    const cells = Array.from({ length: hops }, () => make("td"));
    const row = make("tr", {}, make("th", { scope: "row" }, button), ...cells);
    this.#onAnswer(i, ({ observations }, channels) => {
      const { colour, isShown } = channels.find((channel) => channel.label === label);
      button.setAttribute("aria-pressed", isShown);
      row.style.setProperty("--channel", colour);
      button.title = `${label}: ${observations.map((hop, k) => `hop ${k + 1} (${hop[c].map(formatNumber).join(", ")})`).join(", ")}`;
      cells.forEach((cell, k) => (cell.textContent = formatNumber(norm(observations[k][c]))));
    });
    if (isSplit)
      this.#addBars(row, i, ({ explanation }) =>
        explanation.contributions.filter(({ channel }) => channel === c).map(({ vector }) => vector),
      );
    return row;
  }

  /** Return the row of a term, the k-th contribution. */
  #buildTerm(i, name, hops, k) {
    const row = make("tr", {}, make("th", { scope: "row" }, name));
    if (hops) row.append(make("td", { colSpan: hops }));
    this.#addBars(row, i, ({ explanation }) => [explanation.contributions[k].vector]);
    return row;
  }

  /** Return the rows of the remainder, if there can be one, and of the acceleration. */
  #buildSums(i, hops, hasRemainder) {
    const rows = [];
    for (const [name, title, getVector] of [
      ...(hasRemainder ? [["remainder", REMAINDER, ({ explanation }) => explanation.remainder]] : []),
      ["acceleration", "The commanded acceleration: the sum of all above", ({ commanded }) => commanded],
    ]) {
      const row = make("tr", { className: name, title }, make("th", { scope: "row" }, name));
      if (hops) row.append(make("td", { colSpan: hops }));
      this.#addBars(row, i, (panel) => [getVector(panel)]);
      rows.push(row);
    }
    return rows;
  }

  /** Append a cell with a bar for each vector that `getVectors(panel)` returns, and a cell with their sum. */
  #addBars(row, i, getVectors) {
    const bars = make("div", { className: "bars" });
    const value = make("td", { className: "value" });
    row.append(make("td", {}, bars), value);
    this.#onAnswer(i, (panel) => {
      const vectors = panel.explanation ? getVectors(panel) : [];
      const along = vectors.map((vector) => project(vector, panel.commanded));
      while (bars.children.length < along.length) bars.append(make("i"));
      const scale = findLargest(panel);
      along.forEach((length, k) => {
        const share = Math.min(Math.abs(length) / scale, 1);
        const left = length < 0 ? 50 - 50 * share : 50;
        Object.assign(bars.children[k].style, { marginLeft: `${left}%`, width: `${50 * share}%` });
      });
      value.textContent = along.length ? formatNumber(along.reduce((sum, length) => sum + length, 0)) : "–";
      bars.title = vectors
        .map((vector, k) => `${vectors.length > 1 ? `hop ${k + 1} ` : ""}(${vector.map(formatNumber).join(", ")})`)
        .join(", ");
    });
  }
}

/** Return the heads of the columns of bars and their values. */
function makeBarHeads(text, title) {
  return [make("th", { className: "bar-head", title }, text), make("th", { className: "value" })];
}

/** Return the largest length of a bar of a panel. */
function findLargest({ explanation, commanded }) {
  const vectors = explanation ? [...explanation.contributions.map(({ vector }) => vector), explanation.remainder] : [];
  return Math.max(...[...vectors, commanded].map((vector) => Math.abs(project(vector, commanded))), 1e-9);
}

/** Return what the tables of a panel are built for. */
function describeParts({ observations, explanation }) {
  return [observations?.length, explanation?.method, explanation?.contributions.map(({ name }) => name)];
}

function formatState({ role, condition, dimensions }, group) {
  const words = [condition === "working" ? role : `${condition} ${role}`];
  if (group) words.push(group);
  if (dimensions === 3) words.push("in space");
  return words.join(", ");
}

/** Return elements with a line as it is drawn, and the number of neighbours, for each hop. */
function formatHops({ neighbours, lost }) {
  if (!neighbours) return "too many to list";
  const counts = neighbours.map(({ count }, k) => {
    const { width, opacity } = getHopStyle(k + 1);
    const line = make("i");
    Object.assign(line.style, { borderTopWidth: `${width}px`, opacity });
    return make("span", { className: "hop", title: `Hop ${k + 1}` }, line, `${count}`);
  });
  return lost ? [...counts, make("span", { className: "lost-count" }, `${lost} lost`)] : counts;
}

/** Format the ages of messages: steps of each hop, and milliseconds. */
function formatAges({ ages, time_step: timeStep }) {
  if (!ages) return "not saved";
  const format = (scale) =>
    ages.map((range) => [...new Set(range)].map((steps) => `${+(steps * scale).toPrecision(3)}`).join("–")).join(" · ");
  return `${format(1)} steps, ${format(1000 * timeStep)} ms`;
}

/** Return the component of a vector along another one; 0 if that is 0. */
function project(vector, direction) {
  const length = norm(direction);
  return length > 0 ? vector.reduce((sum, value, d) => sum + value * direction[d], 0) / length : 0;
}

const norm = (vector) => Math.hypot(...vector);

/** Format a number with three digits or so, and a real minus. */
function formatNumber(value) {
  const size = Math.abs(value);
  const text = size >= 9999.5 ? size.toExponential(1) : size.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}
