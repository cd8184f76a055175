/** The connection to the server: a websocket with a queue of requests, each of which gets one answer. */

import { readFrame } from "./player/frames.js";

/** Websocket close code: the server has no room for another page. */
const CLOSE_TRY_AGAIN_LATER = 1013;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 5000;
/** A server that owes an answer and sends nothing for this time is silent; a busy one sends "working". */
const SILENCE_MS = 4000;
/** Maximum number of unanswered requests: two, so that user actions need not wait for the next frame. */
const MAX_UNANSWERED = 2;
/** Events that the server sends without a request. */
const UNSOLICITED_EVENTS = ["welcome", "compiling", "working", "save_progress", "saved", "save_failed"];

/**
 * Sends requests in order, at most MAX_UNANSWERED at a time, and passes on answers. It connects at once, and again
 * after a growing delay whenever the connection is lost; requests that were not answered are then dropped.
 */
export class Connection {
  #socket = null;
  /** Requests that were sent and not answered yet, each with its callback. */
  #unanswered = [];
  #queue = [];
  #retryDelay = FIRST_RETRY_MS;
  /** When the server last sent something, or began to owe an answer; in milliseconds. */
  #heardAt = 0;
  #isSilent = false;

  /**
   * @param {object} handlers callbacks: `notification(message)` for events without a request; for each request either
   *   `frame(frame)` or `answer(request, message)`; `disconnected(reason)`; `silence(isSilent)` when the server stops
   *   answering, and when it answers again or disconnects
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.#connect();
    setInterval(() => {
      const isLate = this.#unanswered.length > 0 && performance.now() - this.#heardAt > SILENCE_MS;
      if (isLate) this.#setSilent(true);
    }, 500);
  }

  /** Whether no request is queued or unanswered. */
  get idle() {
    return this.#unanswered.length === 0 && this.#queue.length === 0;
  }

  /** Return whether a request with one of these commands is queued or unanswered. */
  isWaitingFor(...commands) {
    return [...this.#unanswered, ...this.#queue].some(({ request }) => commands.includes(request.command));
  }

  /**
   * Queue a request; while disconnected, ignore it.
   * @param {object} request
   * @param {function(object): void} then called with the answer if it is "done", before `handlers.answer`; not for frames and
   *   refusals
   */
  ask(request, then = () => {}) {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    this.#queue.push({ request, then });
    this.#flush();
  }

  /**
   * Queue a request at the end, and drop unsent ones with the same command and panel, whose callbacks are not called.
   */
  askLatest(request, then) {
    const isReplaced = (other) => other.command === request.command && other.panel === request.panel;
    this.#queue = this.#queue.filter((queued) => !isReplaced(queued.request));
    this.ask(request, then);
  }

  /**
   * Send a request ahead of the queue, even beyond MAX_UNANSWERED, and drop unsent ones with the same command; while
   * disconnected, ignore it.
   */
  askNow(request, then = () => {}) {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    this.withdrawUnsent(request.command);
    this.#send({ request, then });
  }

  /** Remove unsent requests with these commands from the queue, and return them; they get no answer. */
  withdrawUnsent(...commands) {
    const withdrawn = this.#queue.filter(({ request }) => commands.includes(request.command));
    this.#queue = this.#queue.filter((queued) => !withdrawn.includes(queued));
    return withdrawn.map(({ request }) => request);
  }

  /** Send queued requests while fewer than MAX_UNANSWERED are unanswered. */
  #flush() {
    while (this.#unanswered.length < MAX_UNANSWERED && this.#queue.length) this.#send(this.#queue.shift());
  }

  /** Report whether the server is silent, if that has changed. */
  #setSilent(isSilent) {
    if (isSilent !== this.#isSilent) this.handlers.silence(isSilent);
    this.#isSilent = isSilent;
  }

  #send(entry) {
    if (!this.#unanswered.length) this.#heardAt = performance.now();
    this.#unanswered.push(entry);
    this.#socket.send(JSON.stringify(entry.request));
  }

  /** Open a websocket; when it closes, drop all requests, call `disconnected`, and connect again after a delay. */
  #connect() {
    const socket = new WebSocket(`ws://${location.host}/flight`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      this.#heardAt = performance.now();
      this.#setSilent(false);
      this.#receive(data instanceof ArrayBuffer ? readFrame(data) : JSON.parse(data));
      this.#flush();
    };
    socket.onclose = ({ code, reason }) => {
      this.#setSilent(false);
      this.#unanswered = [];
      this.#queue = [];
      const text = "Connection lost. Is equiflock view still running? Reconnecting …";
      this.handlers.disconnected(code === CLOSE_TRY_AGAIN_LATER ? reason : text);
      setTimeout(() => this.#connect(), this.#retryDelay);
      this.#retryDelay = Math.min(2 * this.#retryDelay, MAX_RETRY_MS);
    };
    this.#socket = socket;
  }

  /** Pass on a notification, or the answer (an event or a frame) to the oldest unanswered request. */
  #receive(message) {
    if (UNSOLICITED_EVENTS.includes(message.event)) {
      this.#retryDelay = FIRST_RETRY_MS;
      if (message.event !== "working") this.handlers.notification(message);
      return;
    }
    const { request, then } = this.#unanswered.shift();
    if (message.event === "done") then(message);
    if (message.event) this.handlers.answer(request, message);
    else this.handlers.frame(message);
  }
}
