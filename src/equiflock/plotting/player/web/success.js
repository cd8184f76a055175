/** A line below a panel's title: the scenario's number of success, and the outcome that its ending has reported. */

import { make } from "./dom.js";

/** Return the text of a number of success: a share in whole percent, 100% only if it is reached; "" without one. */
export function formatSuccess({ success }, value) {
  if (!success || !Number.isFinite(value)) return "";
  const number = success.unit === "share" ? `${Math.floor(100 * value + 1e-9)}%` : value.toFixed(2);
  return success.text.replace("{}", number);
}

/** The line of one panel. */
export class SuccessLine {
  element = make("div", { className: "success" });
  #number = make("b");
  #outcome = make("em", { hidden: true });
  #overlay;
  #announce;

  /**
   * @param {object} overlay what the server says of the scenario: success {text, unit} or null; outcomes by code, each
   *   with text, message and is_success, which is null if no outcome is a success
   * @param {function(string): void} announce called with the text of an outcome, for screen readers
   */
  constructor(overlay, announce) {
    this.#overlay = overlay;
    this.#announce = announce;
    this.element.append(this.#number, this.#outcome);
  }

  /** Show the values of a panel of a frame. */
  show({ success, outcome, outcomeTime }) {
    this.#number.textContent = formatSuccess(this.#overlay, success);
    const reported = this.#overlay.outcomes?.[outcome];
    const text = reported ? `${reported.text} after ${outcomeTime.toFixed(1)} s` : "";
    if (text === this.#outcome.textContent) return;
    Object.assign(this.#outcome, { textContent: text, hidden: !text, title: reported?.message ?? "" });
    this.#outcome.className = { true: "good", false: "bad" }[reported?.is_success] ?? "";
    if (text) this.#announce(text);
  }
}
