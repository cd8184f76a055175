/** Lines for the reader, below the flock. */

import { make } from "./dom.js";

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
