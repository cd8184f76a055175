/** The connection to the server: requests out, one answer for each back in. */

import { readFrame } from "./frames.js";

const FULL = 1013;
const FIRST_WAIT = 500,
  LONGEST_WAIT = 5000;
/** Requests on their way at the same time. One more than one hides the way there and back. */
const MOST_WAITING = 2;

export class Link {
  #socket = null;
  #waiting = 0;
  #queue = [];
  #wait = FIRST_WAIT;

  /**
   * @param {object} on what to call: `message(object)`, `frame(frame)`, `lost(reason)`; `welcome` is a message, too
   */
  constructor(on) {
    this.on = on;
    this.#connect();
  }

  /** Whether every request was answered. */
  get idle() {
    return this.#waiting === 0 && this.#queue.length === 0;
  }

  get open() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Ask for something, now or as soon as the server has answered what it was asked before. */
  ask(request) {
    this.#queue.push(request);
    this.#flush();
  }

  /** Ask for something that takes the place of the last request of its kind, should that still wait here. */
  askLatest(request) {
    this.#queue = this.#queue.filter((other) => other.do !== request.do);
    this.ask(request);
  }

  #flush() {
    while (this.open && this.#waiting < MOST_WAITING && this.#queue.length) {
      this.#waiting += 1;
      this.#socket.send(JSON.stringify(this.#queue.shift()));
    }
  }

  #connect() {
    const socket = new WebSocket(`ws://${location.host}/flight`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#wait = FIRST_WAIT;
    };
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) {
        this.#answered();
        this.on.frame(readFrame(data));
      } else {
        const message = JSON.parse(data);
        if (["started", "saving", "refused", "failed"].includes(message.is)) this.#answered();
        this.on.message(message);
      }
      this.#flush();
    };
    socket.onclose = ({ code, reason }) => {
      this.#waiting = 0;
      this.#queue = [];
      this.on.lost(code === FULL ? reason : "The connection is lost. Is equiflock view still running? Trying again …");
      setTimeout(() => this.#connect(), this.#wait);
      this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT);
    };
    this.#socket = socket;
  }

  #answered() {
    this.#waiting = Math.max(this.#waiting - 1, 0);
  }
}
