/** The browser's history: a changed setting is an entry, so Back and Forward undo and redo it. */

/** Fields that sliders and drags change many times a second. */
const CONTINUOUS_FIELDS = ["environment", "controller_options", "compare_options", "disks"];
/** Changes of the same continuous fields within this time are one entry. */
const COALESCE_MS = 1500;

/** Return the names of the fields in which two objects differ. */
export const listChanges = (before, after) =>
  Object.keys(after).filter((key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]));

/** Writes addresses into the browser's history; each entry has `content`, what flies, and its `position`. */
export class SettingHistory {
  /** The last change, to detect that it goes on. */
  #last = { change: "", at: -Infinity };

  /**
   * Write the address of what flies: as a new entry if `content` has changed, else in place of the present one.
   * @param {string} address
   * @param {object} content its parts are compared: a setting, or {flock}
   * @param {boolean} inPlace whether not to make an entry: the content is that of an address that was opened
   */
  write(address, content, inPlace = false) {
    const { content: before, position = 0 } = history.state ?? {};
    const changes = before ? listChanges(before, content) : [];
    if (!changes.length || inPlace || this.#goesOn(changes, content))
      history.replaceState({ content, position }, "", address);
    else history.pushState({ content, position: position + 1 }, "", address);
  }

  /** Go back by one entry, or forward; never to another page. */
  undo() {
    if (history.state?.position > 0) history.back();
  }

  redo() {
    history.forward();
  }

  /** Return whether a change goes on that is an entry already. */
  #goesOn(changes, { disks }) {
    // One more disk is another change; disks that move are not.
    const change = `${changes} ${disks?.length}`;
    const now = performance.now();
    const goesOn = change === this.#last.change && now - this.#last.at < COALESCE_MS;
    this.#last = { change, at: now };
    return goesOn && changes.every((key) => CONTINUOUS_FIELDS.includes(key));
  }
}
