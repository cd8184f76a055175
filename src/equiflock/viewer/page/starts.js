/** Beginning a flight: a start may take long to find, be cancelled, or give way to another one. */

/** An answer that takes longer is announced. */
const PATIENCE_MS = 500;
/** Requests that begin a flight. */
export const STARTS = ["start", "play"];

export class Starts {
  /** Fields of the setting that were asked for and not answered yet. */
  pending = {};
  #link;
  #notices;
  #patience = 0;

  constructor(link, notices) {
    this.#link = link;
    this.#notices = notices;
  }

  /**
   * Ask for a flight.
   * @param {object} request
   * @param {function(): void} cancel what the button does that is offered if it takes long
   */
  ask(request, cancel) {
    clearTimeout(this.#patience);
    const action = { text: "Cancel", press: cancel };
    const announce = () => this.#notices.tell("Looking for a start …", { id: "patience", stays: true, action });
    this.#patience = setTimeout(announce, PATIENCE_MS);
    // One that is being looked for is no longer wanted, and ends as soon as the server hears of this.
    if (this.#link.waitsFor(request.do)) this.#link.askAtOnce(request);
    else this.#link.ask(request);
  }

  /** Look no further: what flew before flies on. Returns the requests that were not sent, and never will be. */
  cancel() {
    const unsent = this.#link.takeBack(...STARTS);
    this.#link.askAtOnce({ do: "cancel" });
    return unsent;
  }

  /** Take note of an answer; returns whether it matters: not if it was cancelled for the sake of another start. */
  settle(request, message) {
    if (!STARTS.includes(request.do)) return true;
    if (this.#link.waitsFor(request.do)) return message.is !== "cancelled";
    this.forget();
    return true;
  }

  /** Wait for nothing any more. */
  forget() {
    clearTimeout(this.#patience);
    this.#notices.dismiss("patience");
    this.pending = {};
  }
}
