/** Requests that start a flight. The search for initial conditions may take long, be cancelled, or be superseded. */

/** After this time without an answer, a notice is shown. */
const NOTICE_DELAY_MS = 500;
/** Commands that start a flight. */
export const START_COMMANDS = ["start", "play"];

/** Sends "start" and "play" requests, and shows a notice with a Cancel button while the server searches. */
export class StartRequests {
  /** Setting fields that were requested and not answered yet. */
  pending = {};
  #connection;
  #notices;
  #onSearch;
  #noticeTimer = 0;

  /**
   * @param {import("./connection.js").Connection} connection
   * @param {import("./notices.js").Notices} notices
   * @param {function(boolean): void} onSearch called with true if a search takes long, and with false after the last
   */
  constructor(connection, notices, onSearch) {
    this.#connection = connection;
    this.#notices = notices;
    this.#onSearch = onSearch;
  }

  /**
   * Request a flight. It supersedes an earlier request, whose search the server cancels.
   * @param {object} request "start" or "play"
   * @param {function(): void} cancel handler of the Cancel button, which appears if the search takes long
   */
  ask(request, cancel) {
    clearTimeout(this.#noticeTimer);
    const action = { text: "Cancel", onPress: cancel };
    const announce = () => {
      this.#notices.show("Searching for a start …", { id: "search", sticky: true, action });
      this.#onSearch(true);
    };
    this.#noticeTimer = setTimeout(announce, NOTICE_DELAY_MS);
    // A request that is sent at once makes the server cancel the search that is running.
    if (this.#connection.isWaitingFor(request.command)) this.#connection.askNow(request);
    else this.#connection.ask(request);
  }

  /**
   * Ask the server to cancel the search; the current flight continues. Return the start requests that were never sent.
   */
  cancel() {
    const unsent = this.#connection.withdrawUnsent(...START_COMMANDS);
    this.#connection.askNow({ command: "cancel" });
    return unsent;
  }

  /**
   * Handle the answer to any request: `clear` after the last pending start.
   * @returns {boolean} false if the page should ignore it: a search was cancelled because a later start superseded it
   */
  handleReply(request, message) {
    if (!START_COMMANDS.includes(request.command)) return true;
    if (this.#connection.isWaitingFor(request.command)) return message.event !== "cancelled";
    this.clear();
    return true;
  }

  /** Forget the pending setting fields, and dismiss the notice. */
  clear() {
    clearTimeout(this.#noticeTimer);
    this.#notices.dismiss("search");
    this.pending = {};
    this.#onSearch(false);
  }
}
