/** The browser's history: a changed setting is an entry, so Back and Forward undo and redo it. */

/** Fields that sliders and drags change many times a second. */
const CONTINUOUS_FIELDS = ["environment", "controller_options", "compare_options", "disks"];
/** Changes of the same continuous fields within this time are one entry. */
const COALESCE_MS = 1500;

/** Return whether two values have the same content. */
export const isEqual = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Return the names of the fields in which two objects differ. */
export const listChanges = (before, after) => Object.keys(after).filter((key) => !isEqual(before[key], after[key]));

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
    if (!changes.length || inPlace || this.#goesOn(changes, before, content))
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
  #goesOn(changes, before, after) {
    // A disk more or less is a change of its own.
    const change = `${changes} ${before.disks?.length} ${after.disks?.length}`;
    const now = performance.now();
    const goesOn = change === this.#last.change && now - this.#last.at < COALESCE_MS;
    this.#last = { change, at: now };
    return goesOn && changes.every((key) => CONTINUOUS_FIELDS.includes(key));
  }
}
