/** The connection to the server: requests out, one answer for each back in. */

import { readFrame } from "./frames.js";

const FULL = 1013;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 5000;
/** Requests that may be on their way at the same time: what a hand does need not wait for the next frame. */
const MOST_SENT = 2;
/** What the server says without having been asked. */
const NEWS = ["welcome", "compiling", "progress", "saved", "unsaved"];

export class Link {
  #socket = null;
  /** Requests that were not answered yet, each with what to do then. */
  #sent = [];
  #queue = [];
  #wait = FIRST_WAIT;

  /**
   * @param {object} on what to call: `news(message)`; `frame(frame)` or `answer(request, message)`, for each request one
   *   of them; `lost(reason)`
   */
  constructor(on) {
    this.on = on;
    this.#connect();
  }

  /** Whether every request was answered. */
  get idle() {
    return this.#sent.length === 0 && this.#queue.length === 0;
  }

  /** Whether a request of one of these kinds was not answered yet. */
  waitsFor(...kinds) {
    return [...this.#sent, ...this.#queue].some(({ request }) => kinds.includes(request.do));
  }

  /**
   * Ask for something, now or when the server has answered what it was asked before; in vain while it is away.
   * @param {object} request
   * @param {function(): void} then called when it is done
   */
  ask(request, then = () => {}) {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    this.#queue.push({ request, then });
    this.#flush();
  }

  /** Ask for something that takes the place of a request of its kind, for its panel, should that not be sent yet. */
  askLatest(request, then) {
    const replaced = (other) => other.do === request.do && other.panel === request.panel;
    this.#queue = this.#queue.filter((waiting) => !replaced(waiting.request));
    this.ask(request, then);
  }

  /** Ask without waiting for anything that was asked before; of its kind, what was not sent yet never is. */
  askAtOnce(request, then = () => {}) {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    this.takeBack(request.do);
    this.#send({ request, then });
  }

  /** Take back the requests of these kinds that were not sent yet; there will be no answer. */
  takeBack(...kinds) {
    const taken = this.#queue.filter(({ request }) => kinds.includes(request.do));
    this.#queue = this.#queue.filter((waiting) => !taken.includes(waiting));
    return taken.map(({ request }) => request);
  }

  #flush() {
    while (this.#sent.length < MOST_SENT && this.#queue.length) this.#send(this.#queue.shift());
  }

  #send(asked) {
    this.#sent.push(asked);
    this.#socket.send(JSON.stringify(asked.request));
  }

  #connect() {
    const socket = new WebSocket(`ws://${location.host}/flight`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      this.#receive(data instanceof ArrayBuffer ? readFrame(data) : JSON.parse(data));
      this.#flush();
    };
    socket.onclose = ({ code, reason }) => {
      this.#sent = [];
      this.#queue = [];
      this.on.lost(code === FULL ? reason : "The connection is lost. Is equiflock view still running? Trying again …");
      setTimeout(() => this.#connect(), this.#wait);
      this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT);
    };
    this.#socket = socket;
  }

  #receive(message) {
    if (NEWS.includes(message.is)) {
      this.#wait = FIRST_WAIT;
      this.on.news(message);
      return;
    }
    const { request, then } = this.#sent.shift();
    if (message.is === "done") then();
    if (message.is) this.on.answer(request, message);
    else this.on.frame(message);
  }
}
