"""One page's connection: its requests are read as they come, and carried out and answered one after the other."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect

from equiflock.runtime import compile_progress
from equiflock.runtime.checks import InputError
from equiflock.scenarios import SearchCancelledError, Stop
from equiflock.viewer import requests
from equiflock.viewer.flight_archive import FlightArchive
from equiflock.viewer.frames import pack_frame
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.playback import Playback
from equiflock.viewer.viewer_config import ViewerConfig

PROGRESS_INTERVAL = 0.25
"""Seconds between two reports on a flight that is being saved, or on kernels that are being compiled."""
MAX_PENDING_REQUESTS = 500
"""Requests that may wait for answers; more close the connection. The page of this package sends a few."""
CLOSE_POLICY_VIOLATION = 1008
"""The websocket close code for a violated policy."""
log = logging.getLogger("equiflock.viewer")

Reply = bytes | dict[str, Any]


@dataclass(frozen=True)
class PendingRequest:
    """A request that waits for its turn, or why it was refused, and what cancels the search that it may start."""

    request: requests.Request | InputError
    stop: Stop


class Session:
    """What one page sees, and the requests that change it.

    A request is answered by a frame (bytes) or by a JSON object that says what it `is`: "started", "done", "saving",
    "refused" (the request was wrong; nothing has changed), "cancelled" (the search for a start was; nothing has
    changed) or "failed" (the flight raised an error and is gone). Answers come in the order of the requests, so a page
    that waits for each answer is never sent more than it can draw. Sent unasked: "welcome", "compiling" with
    how far the compiler is, and "progress", "saved" or "unsaved" about a flight that is being saved.

    Args:
        viewer_config: what there is to choose from.
        workers: threads that fly. Kernels run on plain threads and without Python's lock, so sessions fly at once.
        archive: saves flights.
    """

    def __init__(self, viewer_config: ViewerConfig, workers: Executor, archive: FlightArchive) -> None:
        self.viewer_config = viewer_config
        self.current: LiveSimulation | Playback | None = None
        self._workers = workers
        self._archive = archive
        self._save_job: _SaveJob | None = None
        self._stop = Stop()
        """Cancels the search for the start that was requested last."""

    async def serve(self, socket: WebSocket) -> None:
        """Answer requests until the page disconnects; then free its flight, and cancel a search that is running."""
        # Reading and answering are two tasks, so that "cancel" is read while a search is running.
        waiting: asyncio.Queue[PendingRequest] = asyncio.Queue()
        listening = asyncio.create_task(self._receive_all(socket, waiting))
        answering = asyncio.create_task(self._answer_all(socket, waiting))
        try:
            await asyncio.wait([listening, answering], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()
            gone = listening.done()  # the page has disconnected, so an answer that cannot be sent is expected
            for task in (listening, answering):
                task.cancel()
            await asyncio.gather(listening, answering, return_exceptions=True)
            self.current = None
        # Answering ended by itself: raise its error, unless it was only that the page disconnected.
        if not gone:
            with suppress(WebSocketDisconnect):
                answering.result()

    async def _receive_all(self, socket: WebSocket, waiting: asyncio.Queue[PendingRequest]) -> None:
        """Put requests into the queue until the page disconnects."""
        while (message := await socket.receive())["type"] == "websocket.receive":
            if waiting.qsize() >= MAX_PENDING_REQUESTS:
                await socket.close(CLOSE_POLICY_VIOLATION, "wait for answers before you ask for more")
                return
            waiting.put_nowait(self._receive(message.get("text") or ""))

    async def _answer_all(self, socket: WebSocket, waiting: asyncio.Queue[PendingRequest]) -> None:
        """Carry out requests one after the other, on a worker's thread, and send the answers."""
        await socket.send_json({"is": "welcome", **self.viewer_config.to_dict()})
        loop = asyncio.get_running_loop()
        while True:
            work = loop.run_in_executor(self._workers, self._answer_request, await waiting.get())
            # An answer may have to wait until kernels are compiled, which the page shows.
            while not (await asyncio.wait([work], timeout=PROGRESS_INTERVAL))[0]:
                if (text := compile_progress.format_progress()) is not None:
                    await socket.send_json({"is": "compiling", "text": text})
            answer = work.result()
            if isinstance(answer, bytes):
                await socket.send_bytes(answer)
            else:
                await socket.send_json(answer)
            # Progress is told from here on, after the answer that saving has begun.
            if self._save_job is not None and self._save_job.progress_task is None:
                self._save_job.progress_task = asyncio.create_task(self._save_job.send_progress(socket))

    def answer(self, text: str) -> Reply:
        """Carry out the request in a message; if anything goes wrong, the answer says so in one line."""
        return self._answer_request(self._receive(text))

    def _receive(self, text: str) -> PendingRequest:
        """Read a request. "start", "play" and "cancel" cancel the searches that were requested before."""
        try:
            request = requests.parse_request(text)
        except InputError as error:
            return PendingRequest(error, self._stop)
        if isinstance(request, requests.Start | requests.Play | requests.Cancel):
            self._stop.set()
            self._stop = Stop()
        return PendingRequest(request, self._stop)

    def _answer_request(self, pending: PendingRequest) -> Reply:
        try:
            if isinstance(pending.request, InputError):
                raise pending.request
            return self._execute(pending.request, pending.stop)
        except SearchCancelledError as error:
            return {"is": "cancelled", "text": str(error)}
        except InputError as error:
            return {"is": "refused", "text": str(error)}
        except Exception as error:  # whatever somebody's controller may raise
            log.exception("a flight broke down")
            return self._drop_flight(f"{type(error).__name__}: {error}")

    def _drop_flight(self, text: str) -> Reply:
        self.current = None
        return {"is": "failed", "text": text}

    def _execute(self, request: requests.Request, stop: Stop) -> Reply:
        if isinstance(request, requests.Cancel):
            return {"is": "done"}  # the search was cancelled when the request was read
        if isinstance(request, requests.Start):
            live_simulation = LiveSimulation(request.setting, self.viewer_config.load, stop)
            # Shown only now: if the search failed or was cancelled, the flight from before goes on.
            self.current = live_simulation
            return {"is": "started", **live_simulation.to_dict()}
        if isinstance(request, requests.Play):
            if not self.viewer_config.flights:
                raise InputError("there is no saved flight to play: start equiflock view with one")
            playback = Playback(self.viewer_config.flights, request.flock)
            to_dict = playback.to_dict(stop)
            self.current = playback
            return {"is": "started", "playback": to_dict}
        # All other requests are about what is shown.
        current = self.current
        if current is None:
            raise InputError("nothing is flying: start a flight first")
        if isinstance(request, requests.ShowEdges):
            current.edges = request.edges
        elif isinstance(request, requests.Seek) and isinstance(current, Playback):
            current.seek(request.frame)
        elif isinstance(request, requests.Advance) and isinstance(current, LiveSimulation):
            try:
                current.advance(request.steps)
            except InputError as error:  # such as NaN from a controller, or a flock that flew out of range
                return self._drop_flight(str(error))
        elif isinstance(request, requests.Action) and isinstance(current, LiveSimulation):
            request.apply(current)
            remarked = isinstance(request, requests.ChangeLaw) and current.warning is not None
            return {"is": "done", **({"remark": current.warning} if remarked else {})}
        elif isinstance(request, requests.Save) and isinstance(current, LiveSimulation):
            return self._start_saving(current, request.speed)
        else:
            # A request for a live flight while a saved one is shown, or the other way round.
            raise InputError("saved flights can only be looked at, and live ones have no frames to go to")
        return pack_frame(current.step, current.time, current.make_pictures())

    def _start_saving(self, live_simulation: LiveSimulation, speed: float) -> Reply:
        if self._save_job is not None and not self._save_job.future.done():
            raise InputError("a flight is being saved: wait for it")
        self._save_job = _SaveJob(self._archive, live_simulation, speed)
        return {"is": "saving"}


class _SaveJob:
    """A flight that is being saved; saving goes on even if its page disconnects."""

    def __init__(self, archive: FlightArchive, live_simulation: LiveSimulation, speed: float) -> None:
        runs = live_simulation.to_trajectories()
        self.start_time = runs[0].config["begins_at"]
        self.film_progress = 0, 0
        self.future: Future[Path] = archive.save(runs, speed, self._on_frame)
        self.progress_task: asyncio.Task[None] | None = None
        """The task that sends progress to the page."""

    def _on_frame(self, done: int, total: int) -> None:
        self.film_progress = done, total

    async def send_progress(self, socket: WebSocket) -> None:
        """Send the page its progress and in the end where the flight was saved, as long as the page is connected."""
        future = asyncio.wrap_future(self.future)
        with suppress(RuntimeError, WebSocketDisconnect):
            while not future.done():
                await asyncio.wait([future], timeout=PROGRESS_INTERVAL)
                done, total = self.film_progress
                await socket.send_json({"is": "progress", "done": done, "total": total})
            try:
                folder = future.result()
            except Exception as error:  # a full disk, a folder that must not be written to
                log.exception("a flight could not be saved")
                await socket.send_json({"is": "unsaved", "text": f"the flight could not be saved: {error}"})
            else:
                told = {"folder": str(folder.resolve()), "name": folder.name, "since": self.start_time}
                await socket.send_json({"is": "saved", **told})
