/** Notices below the flock. */

import { byId, make } from "./player/dom.js";

const SHOWN_MS = 6000;

/** Notices in a parent element; several may be shown at a time. */
export class Notices {
  constructor(parent) {
    this.parent = parent;
  }

  /**
   * Show a notice, for SHOWN_MS unless it is sticky.
   * @param {string} text
   * @param {object} options id: replaces the notice with the same id, by default its text; isError; sticky: stays until
   *   dismissed; link: {href, text, download}; action: a button {text, onPress}
   */
  show(text, { id = text, isError = false, sticky = false, link = null, action = null } = {}) {
    this.dismiss(id);
    const notice = make("p", { className: isError ? "bad" : "" }, text);
    notice.dataset.id = id;
    if (link) notice.append(" ", make("a", { href: link.href, download: link.download }, link.text));
    if (action) notice.append(make("button", { onclick: action.onPress }, action.text));
    this.parent.append(notice);
    if (!sticky) setTimeout(() => notice.remove(), SHOWN_MS);
  }

  /** Remove all notices except those with these ids. */
  dismissExcept(...ids) {
    for (const notice of [...this.parent.children]) if (!ids.includes(notice.dataset.id)) notice.remove();
  }

  /** Remove the notice with this id, if it is shown. */
  dismiss(id) {
    for (const notice of [...this.parent.children]) if (notice.dataset.id === id) notice.remove();
  }
}

/** Show the progress of kernel compilation in place of the flock; an empty text hides it. */
export function showCompiling(text) {
  byId("compiling").hidden = !text;
  byId("compiling").textContent = text;
}

/**
 * Show the status of a save in one sticky notice: progress, or the result with an OK button.
 * @param {object} message event "save_progress", "saved" or "save_failed" of the server
 * @param {Notices} notices
 */
export function showSaveStatus(message, notices) {
  const options = { id: "saving", sticky: true };
  const action = { text: "OK", onPress: () => notices.dismiss("saving") };
  if (message.event === "save_progress") {
    const share = message.total ? `${Math.round((100 * message.done) / message.total)} %` : "…";
    notices.show(`Rendering the film: ${share}`, options);
  } else if (message.event === "save_failed") notices.show(message.text, { ...options, isError: true, action });
  else {
    const { folder, name, start_time } = message;
    const part = `, from ${start_time.toFixed(2)} s on, when agents, obstacles or bodies last changed`;
    const link = { href: `/saved/${name}/film.mp4`, text: "Download the film.", download: `${name}.mp4` };
    notices.show(`Saved${start_time > 0 ? part : ""}: ${folder}`, { ...options, link, action });
  }
}

/** Show a sticky notice while the server does not answer. */
export function showSilence(isSilent, notices) {
  const text = "The server has stopped answering: it is busy or frozen. The flight goes on when it answers.";
  if (isSilent) notices.show(text, { id: "silence", isError: true, sticky: true });
  else notices.dismiss("silence");
}

/** Show a sticky notice that a flight failed, with a button that calls `reset`. */
export function showFailure(text, reset, notices) {
  const action = { text: "Reset", onPress: reset };
  notices.show(`The flight failed: ${text}`, { id: "failure", isError: true, sticky: true, action });
}
