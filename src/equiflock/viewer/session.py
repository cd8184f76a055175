"""The session of one page: receives its requests (`protocol`), executes them in order, and sends the answers."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import WebSocket, WebSocketDisconnect

from equiflock._runtime import compile_progress
from equiflock._runtime.checks import InputError
from equiflock.plotting.player.frames import pack_frame
from equiflock.plotting.player.playback import Playback
from equiflock.scenarios import SearchCancelledError, Stop
from equiflock.viewer import protocol
from equiflock.viewer.flight_archive import FlightArchive
from equiflock.viewer.inspection import describe_agent
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.viewer_config import ViewerConfig

PROGRESS_INTERVAL = 0.25
"""Seconds between progress messages about saving or compiling."""
WORKING_INTERVAL = 1.0
"""Seconds between messages that an answer takes long, so that the page can tell a busy server from a frozen one."""
MAX_PENDING_REQUESTS = 500
"""With more pending requests the connection is closed. The page sends two at a time."""
CLOSE_POLICY_VIOLATION = 1008
"""Websocket close code "policy violation"."""
log = logging.getLogger("equiflock.viewer")

Reply = bytes | dict[str, Any]
"""A frame, or a JSON object."""


class PendingRequest(NamedTuple):
    """A received request, or the error in it, and the `Stop` that cancels the search it may start."""

    request: protocol.Request | InputError
    stop: Stop


class Session:
    """The flights that one page shows, and the execution of its requests.

    `workers` are the threads that simulate. Kernels release Python's lock, so sessions run in parallel.
    """

    def __init__(self, viewer_config: ViewerConfig, workers: Executor, archive: FlightArchive) -> None:
        self.viewer_config = viewer_config
        self.current: LiveSimulation | Playback | None = None
        self._workers = workers
        self._archive = archive
        self._save_job: _SaveJob | None = None
        self._stop = Stop()
        """Cancels the search of the latest start request."""

    async def serve(self, socket: WebSocket) -> None:
        """Answer requests until the page disconnects or sends too many; then cancel its search and drop its flight.

        An unfinished save continues. Raise the error of answering if that fails while the page is connected.
        """
        # Receiving and answering are separate tasks, so that "cancel" is received during a search.
        waiting: asyncio.Queue[PendingRequest] = asyncio.Queue()
        receiving = asyncio.create_task(self._receive_all(socket, waiting))
        answering = asyncio.create_task(self._answer_all(socket, waiting))
        try:
            await asyncio.wait([receiving, answering], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()
            is_disconnected = receiving.done()  # then errors of sending answers are expected
            for task in (receiving, answering):
                task.cancel()
            await asyncio.gather(receiving, answering, return_exceptions=True)
            self.current = None
        # Answering failed: raise its error, unless the page disconnected.
        if not is_disconnected:
            with suppress(WebSocketDisconnect):
                answering.result()

    async def _receive_all(self, socket: WebSocket, waiting: asyncio.Queue[PendingRequest]) -> None:
        """Queue parsed requests until the page disconnects; if MAX_PENDING_REQUESTS are queued, disconnect it."""
        while (message := await socket.receive())["type"] == "websocket.receive":
            if waiting.qsize() >= MAX_PENDING_REQUESTS:
                await socket.close(CLOSE_POLICY_VIOLATION, "too many pending requests: wait for answers")
                return
            waiting.put_nowait(self._receive(message.get("text") or ""))

    async def _answer_all(self, socket: WebSocket, waiting: asyncio.Queue[PendingRequest]) -> None:
        """Send the welcome message; then execute requests on a worker thread and send the answers, until cancelled."""
        await socket.send_json({"event": "welcome", **self.viewer_config.welcome})
        loop = asyncio.get_running_loop()
        while True:
            work = loop.run_in_executor(self._workers, self._answer_request, await waiting.get())
            # Report the progress of the compiler while the answer waits for kernels, and that the server is alive.
            reported = loop.time()
            while not (await asyncio.wait([work], timeout=PROGRESS_INTERVAL))[0]:
                if (text := compile_progress.format_progress()) is not None:
                    await socket.send_json({"event": "compiling", "text": text})
                elif loop.time() - reported < WORKING_INTERVAL:
                    continue
                else:
                    await socket.send_json({"event": "working"})
                reported = loop.time()
            answer = work.result()
            if isinstance(answer, bytes):
                await socket.send_bytes(answer)
            else:
                await socket.send_json(answer)
            # Send progress only after the answer "saving".
            if self._save_job is not None and self._save_job.progress_task is None:
                self._save_job.progress_task = asyncio.create_task(self._save_job.send_progress(socket))

    def _receive(self, text: str) -> PendingRequest:
        """Parse a message; valid "start", "play" and "cancel" requests cancel the searches of earlier requests."""
        try:
            request = protocol.parse_request(text)
        except InputError as error:
            return PendingRequest(error, self._stop)
        if isinstance(request, protocol.Start | protocol.Play | protocol.Cancel):
            self._stop.set()
            self._stop = Stop()
        return PendingRequest(request, self._stop)

    def _answer_request(self, pending: PendingRequest) -> Reply:
        """Execute a request and return the answer, also for errors."""
        try:
            if isinstance(pending.request, InputError):
                raise pending.request
            return self._execute(pending.request, pending.stop)
        except SearchCancelledError as error:
            return {"event": "cancelled", "text": str(error)}
        except InputError as error:
            return {"event": "refused", "text": str(error)}
        except Exception as error:  # a plugin's controller may raise anything
            log.exception("a flight failed")
            return self._drop_flight(f"{type(error).__name__}: {error}")

    def _drop_flight(self, text: str) -> Reply:
        """Drop the current flight and return the answer "failed" with a text."""
        self.current = None
        return {"event": "failed", "text": text}

    def _execute(self, request: protocol.Request, stop: Stop) -> Reply:
        """Execute a valid request and return its answer."""
        if isinstance(request, protocol.Cancel):
            return {"event": "done"}  # the search was cancelled on receipt
        if isinstance(request, protocol.Start):
            live_simulation = LiveSimulation(request.setting, self.viewer_config.load, stop)
            # If the search failed or was cancelled, the current flight continues.
            self.current = live_simulation
            return {"event": "started", **live_simulation.to_dict()}
        if isinstance(request, protocol.Play):
            if not self.viewer_config.flights:
                raise InputError("there are no saved flights to play: start equiflock view with a saved flight")
            playback = Playback(self.viewer_config.flights, request.flock)
            description = playback.to_dict(stop)
            self.current = playback
            return {"event": "started", "playback": description}
        if self.current is None:
            raise InputError("there is no flight: start a flight first")
        return self._execute_in_flight(request, self.current)

    def _execute_in_flight(self, request: protocol.Request, current: LiveSimulation | Playback) -> Reply:
        """Execute a request that concerns the current flight; raise InputError if it needs one of the other kind."""
        if isinstance(request, protocol.ShowEdges):
            current.edges = request.edges
        elif isinstance(request, protocol.Watch):
            return {"event": "watched", **describe_agent(current, request.agent, request.id)}
        elif isinstance(request, protocol.Seek) and isinstance(current, Playback):
            current.seek(request.frame)
        elif isinstance(request, protocol.Advance) and isinstance(current, LiveSimulation):
            try:
                current.advance(request.steps)
            except InputError as error:  # such as NaN from a controller, or positions out of range
                return self._drop_flight(str(error))
        elif isinstance(request, protocol.Action) and isinstance(current, LiveSimulation):
            request.apply(current)
            if isinstance(request, protocol.ChangeLaw):
                return {"event": "done", **current.describe_options()}
            return {"event": "done"}
        elif isinstance(request, protocol.Save) and isinstance(current, LiveSimulation):
            if self._save_job is not None and not self._save_job.future.done():
                raise InputError("a flight is being saved: wait until it is done")
            self._save_job = _SaveJob(self._archive, current, request.speed)
            return {"event": "saving"}
        else:
            kind = "saved" if isinstance(current, Playback) else "live"
            raise InputError(f"command {request.command!r} does not apply to {kind} flights")
        return pack_frame(current.step, current.time, current.make_pictures())


class _SaveJob:
    """A flight that is being saved; saving continues even if the page disconnects."""

    def __init__(self, archive: FlightArchive, live_simulation: LiveSimulation, speed: float) -> None:
        runs = live_simulation.to_trajectories()
        self.start_time = runs[0].config["start_time"]
        self.film_progress = 0, 0
        """Frames drawn, and total frames."""
        self.future: Future[Path] = archive.save(runs, speed, self._on_frame)
        self.progress_task: asyncio.Task[None] | None = None

    def _on_frame(self, done: int, total: int) -> None:
        """Store the progress of the film; called in the archive's worker thread."""
        self.film_progress = done, total

    async def send_progress(self, socket: WebSocket) -> None:
        """Send "save_progress" every PROGRESS_INTERVAL, then "saved" or "save_failed"; stop if the page disconnects."""
        future = asyncio.wrap_future(self.future)
        with suppress(RuntimeError, WebSocketDisconnect):
            while not future.done():
                await asyncio.wait([future], timeout=PROGRESS_INTERVAL)
                done, total = self.film_progress
                await socket.send_json({"event": "save_progress", "done": done, "total": total})
            try:
                folder = future.result()
            except Exception as error:  # such as a full disk or missing permission
                log.exception("a flight could not be saved")
                await socket.send_json({"event": "save_failed", "text": f"the flight could not be saved: {error}"})
            else:
                result = {"folder": str(folder.resolve()), "name": folder.name, "start_time": self.start_time}
                await socket.send_json({"event": "saved", **result})
