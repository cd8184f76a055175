/** Lines for the reader, below the flock. */

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
    const notice = Object.assign(document.createElement("p"), { className: bad ? "bad" : "" });
    notice.dataset.id = id;
    notice.append(text);
    if (link)
      notice.append(
        " ",
        Object.assign(document.createElement("a"), {
          href: link.href,
          textContent: link.text,
          download: link.download,
        }),
      );
    if (action)
      notice.append(
        Object.assign(document.createElement("button"), { textContent: action.text, onclick: action.press }),
      );
    this.parent.append(notice);
    if (!stays) setTimeout(() => notice.remove(), SHOWN_MS);
  }

  dismiss(id) {
    for (const notice of [...this.parent.children]) if (notice.dataset.id === id) notice.remove();
  }
}
