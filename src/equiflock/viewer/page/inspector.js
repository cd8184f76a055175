/** The inspected agent: asks the server for its description, and passes it to the card and the picture. */

import { InspectionCard } from "./inspection_card.js";
import { formatChannel } from "./player/names.js";
import { listGroups } from "./player/frames.js";
import { PALETTES } from "./player/palettes.js";
import { Scales } from "./vector_scales.js";

/** Minimum time between an answer and the next request, and its multiple of the time that the answer took. */
const MIN_PAUSE_MS = 100;
const PAUSE_FACTOR = 3;
/** Number of channels whose vectors are drawn at first. */
const FIRST_CHANNELS = 3;

/** Inspects one agent, the same in all panels. */
export class Inspector {
  #view;
  #card;
  /** What the next request asks for: {agent: index} or {id}; null if no agent is inspected. */
  #target = null;
  #answer = null;
  #asked = { frame: null, at: 0 };
  #nextAt = 0;
  #theme = "";
  #drawing = null;
  #scales = new Scales();
  /** Labels of the channels of both panels, which number their colours, and those whose vectors are drawn. */
  #labels = [];
  #shown = new Set();

  /**
   * @param {HTMLElement} root the card
   * @param {import("./view.js").View} view
   */
  constructor(root, view) {
    this.#view = view;
    this.#card = new InspectionCard(root, {
      close: () => this.close(),
      follow: () => this.#toggleFollowing(),
      toggleChannel: (label) => this.#toggleChannel(label),
    });
  }

  /** What InspectionLayer draws; null if no agent is inspected, or if agents came or went since the last answer. */
  get drawing() {
    if (!this.#drawing || !this.#view.frame) return null;
    const agents = Math.max(...this.#view.frame.panels.map((panel) => panel.agents));
    return this.#drawing.agents === agents ? this.#drawing : null;
  }

  /** Inspect the agent of an index in the frame that is shown; -1 ends the inspection. */
  inspect(agent) {
    const wasFollowing = this.#isFollowing;
    this.close();
    if (agent < 0) return;
    this.#target = { agent };
    if (wasFollowing) for (const camera of this.#view.screen.cameras) camera.followAgent(agent);
    this.#ask();
  }

  /** End the inspection, and follow the flock again if the camera followed the agent. */
  close() {
    if (this.#isFollowing) this.#view.follow();
    this.#target = this.#answer = this.#drawing = null;
    this.#card.hide();
    this.#view.screen.requestRedraw();
  }

  /** Continue with another flight: its agent of the same id. */
  begin() {
    const isFollowing = this.#isFollowing;
    this.#drawing = null;
    this.#labels = [];
    this.#shown.clear();
    this.#scales.clear();
    this.#asked.frame = null;
    if (!this.#target) return;
    // New cameras are made after this.
    if (isFollowing) queueMicrotask(() => this.#toggleFollowing());
  }

  /** Ask again when a new frame is shown, at a rate at which frames do not suffer; `now` is in milliseconds. */
  tick(now) {
    if (!this.#target) return;
    const { frame, connection } = this.#view;
    this.#card.setFollowing(this.#isFollowing);
    for (const camera of this.#view.screen.cameras)
      if (camera.agent !== null) camera.agent = this.drawing ? this.#drawing.agent : undefined;
    if (this.#answer && this.#theme !== this.#view.screen.theme) this.#update();
    if (frame === this.#asked.frame || now < this.#nextAt || connection.isWaitingFor("watch")) return;
    this.#ask();
  }

  /** Handle an answer to the request "watch". */
  receive(message) {
    const now = performance.now();
    this.#nextAt = now + Math.max(MIN_PAUSE_MS, PAUSE_FACTOR * (now - this.#asked.at));
    if (!this.#target || !this.#view.frame) return;
    if (message.event !== "watched" || message.agent === null) {
      this.#drawing = null;
      if (this.#isFollowing) this.#view.follow();
      this.#card.showGone(message.id ?? this.#target.id ?? this.#target.agent);
      this.#target = message.event === "watched" ? { id: message.id } : null;
      return;
    }
    this.#target = { id: message.id };
    this.#answer = keepKnown(message, this.#answer);
    this.#nameChannels(this.#answer.panels);
    this.#scales.update(this.#answer.panels, now);
    this.#update();
  }

  /** Whether the cameras follow the agent. */
  get #isFollowing() {
    const [camera] = this.#view.screen.cameras;
    return Boolean(this.#target && camera?.following && camera.agent !== null);
  }

  #ask() {
    this.#asked = { frame: this.#view.frame, at: performance.now() };
    this.#view.connection.askLatest({ command: "watch", ...this.#target });
  }

  #toggleFollowing() {
    if (this.#isFollowing) this.#view.follow();
    else if (this.#answer) for (const camera of this.#view.screen.cameras) camera.followAgent(this.#answer.agent);
    this.#view.screen.requestRedraw();
  }

  #toggleChannel(label) {
    if (!this.#shown.delete(label)) this.#shown.add(label);
    this.#update();
  }

  /** Number the channels of all panels, in their order; the first ones are drawn. */
  #nameChannels(panels) {
    for (const panel of panels)
      for (const [k, [feature, aggregation]] of (panel?.channels ?? []).entries()) {
        const label = formatChannel(feature, aggregation);
        if (this.#labels.includes(label)) continue;
        this.#labels.push(label);
        if (k < FIRST_CHANNELS) this.#shown.add(label);
      }
  }

  /** Update the card and what is drawn. */
  #update() {
    if (!this.#answer || !this.#view.frame) return;
    const { screen, frame } = this.#view;
    this.#theme = screen.theme;
    const palette = PALETTES[this.#theme];
    const channels = this.#labels.map((label, k) => ({
      label,
      colour: palette.channels[k % palette.channels.length],
      isShown: this.#shown.has(label),
    }));
    const { agent, agents, panels } = this.#answer;
    const first = panels.find((panel) => panel);
    const hasGroups = first.role !== "obstacle" && listGroups(frame.panels[0]).length > 1;
    this.#card.show(this.#answer, channels, screen.controllers, hasGroups ? screen.nameGroup(first.group) : "");
    this.#drawing = {
      agent,
      agents,
      panels: panels.map((panel, i) => panel && this.#draw(panel, i, channels, palette)),
    };
    screen.requestRedraw();
  }

  /** Return what InspectionLayer draws in a panel. */
  #draw(panel, i, channels, palette) {
    const vectors = [];
    for (const [h, hop] of (panel.observations ?? []).entries())
      hop.forEach((vector, c) => {
        const { label, colour, isShown } = channels[this.#labels.indexOf(formatChannel(...panel.channels[c]))];
        const length = Math.hypot(...vector) / this.#scales.get(i, label);
        if (isShown) vectors.push({ vector, length, colour, hop: h + 1 });
      });
    vectors.reverse(); // hop 1 above the others
    if (panel.commanded) {
      const length = Math.hypot(...panel.commanded) / this.#scales.get(i, "acceleration");
      vectors.push({ vector: panel.commanded, length, colour: palette.ink, hop: 0 });
    }
    return { hops: (panel.neighbours ?? []).map(({ links }) => links), lost: panel.lost_senders, vectors };
  }
}

/** Return an answer with the observations of the one before where the flight was changed since its last step. */
function keepKnown(answer, before) {
  if (before?.id !== answer.id) return answer;
  const panels = answer.panels.map((panel, i) => {
    const last = before.panels[i];
    const isSame = last?.observations && JSON.stringify(last.channels) === JSON.stringify(panel?.channels);
    if (!panel?.is_changed || !isSame) return panel;
    const { commanded, observations, explanation, reason } = last;
    return { ...panel, commanded, observations, explanation, reason };
  });
  return { ...answer, panels };
}
