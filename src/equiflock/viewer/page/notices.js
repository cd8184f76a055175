/** Lines for the reader, below the flock. */

import { byId, make } from "./dom.js";

const SHOWN_MS = 6000;

export class Notices {
  constructor(parent) {
    this.parent = parent;
  }

  /**
   * @param {string} text
   * @param {object} how id: it takes the place of the one with the same id; bad: something is wrong; stays: until it is
   *   dismissed; link: {href, text, download}; action: {text, press}
   */
  tell(text, { id = text, bad = false, stays = false, link = null, action = null } = {}) {
    this.dismiss(id);
    const notice = make("p", { className: bad ? "bad" : "" }, text);
    notice.dataset.id = id;
    if (link) notice.append(" ", make("a", { href: link.href, download: link.download }, link.text));
    if (action) notice.append(make("button", { onclick: action.press }, action.text));
    this.parent.append(notice);
    if (!stays) setTimeout(() => notice.remove(), SHOWN_MS);
  }

  dismissAllBut(id) {
    for (const notice of [...this.parent.children]) if (notice.dataset.id !== id) notice.remove();
  }

  dismiss(id) {
    for (const notice of [...this.parent.children]) if (notice.dataset.id === id) notice.remove();
  }
}

/** Show, where the flock would be, how far the compiler is that it waits for; nothing if the text is empty. */
export function showCompiling(text) {
  byId("compiling").hidden = !text;
  byId("compiling").textContent = text;
}

/** Tell what the server says of a flight that is being saved. */
export function tellOfSaving(message, notices) {
  const stays = { id: "saving", stays: true };
  const action = { text: "OK", press: () => notices.dismiss("saving") };
  if (message.is === "progress") {
    const share = message.total ? `${Math.round((100 * message.done) / message.total)} %` : "…";
    notices.tell(`Drawing the film: ${share}`, stays);
  } else if (message.is === "unsaved") notices.tell(message.text, { ...stays, bad: true, action });
  else {
    const { folder, name, since } = message;
    const part = `, from ${since.toFixed(2)} s on, when agents, obstacles or bodies last changed`;
    const link = { href: `/saved/${name}/film.mp4`, text: "Download the film.", download: `${name}.mp4` };
    notices.tell(`Saved${since > 0 ? part : ""}: ${folder}`, { ...stays, link, action });
  }
}

/** Tell that a flight broke down, with a button that begins anew. */
export function tellOfFailure(text, reset, notices) {
  const action = { text: "Reset", press: reset };
  notices.tell(`The flight broke down: ${text}`, { id: "failure", bad: true, stays: true, action });
}
