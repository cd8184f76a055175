/** Requests that start a flight. The search for initial conditions may take long, be cancelled, or be superseded. */

/** After this time without an answer, a notice is shown. */
const NOTICE_DELAY_MS = 500;
/** Commands that start a flight. */
export const START_COMMANDS = ["start", "play"];

export class StartRequests {
  /** Setting fields that were requested and not answered yet. */
  pending = {};
  #connection;
  #notices;
  #noticeTimer = 0;

  constructor(connection, notices) {
    this.#connection = connection;
    this.#notices = notices;
  }

  /**
   * Request a flight.
   * @param {object} request
   * @param {function(): void} cancel handler of the Cancel button, which appears if the search takes long
   */
  ask(request, cancel) {
    clearTimeout(this.#noticeTimer);
    const action = { text: "Cancel", onPress: cancel };
    const announce = () => this.#notices.show("Searching for a start …", { id: "search", sticky: true, action });
    this.#noticeTimer = setTimeout(announce, NOTICE_DELAY_MS);
    // A request that is sent at once makes the server cancel the search that is running.
    if (this.#connection.isWaitingFor(request.command)) this.#connection.askNow(request);
    else this.#connection.ask(request);
  }

  /** Cancel the search; the current flight continues. Return the requests that were never sent. */
  cancel() {
    const unsent = this.#connection.withdrawUnsent(...START_COMMANDS);
    this.#connection.askNow({ command: "cancel" });
    return unsent;
  }

  /** Handle an answer; return false if it only says that the search was superseded by a later start. */
  handleReply(request, message) {
    if (!START_COMMANDS.includes(request.command)) return true;
    if (this.#connection.isWaitingFor(request.command)) return message.event !== "cancelled";
    this.clear();
    return true;
  }

  /** Forget pending requests and dismiss their notice. */
  clear() {
    clearTimeout(this.#noticeTimer);
    this.#notices.dismiss("search");
    this.pending = {};
  }
}
