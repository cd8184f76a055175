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

from equiflock.runtime import compiling
from equiflock.runtime.checks import InputError
from equiflock.scenarios import SearchCancelledError, Stop
from equiflock.viewer import requests
from equiflock.viewer.exhibit import Exhibit
from equiflock.viewer.frames import pack_frame
from equiflock.viewer.playback import Playback
from equiflock.viewer.saving import Archive
from equiflock.viewer.stage import Stage

PROGRESS_SECONDS = 0.25
"""Seconds between two reports on a flight that is being saved, or on kernels that are being compiled."""
MOST_WAITING = 500
"""Requests that may wait for answers; more close the connection. The page of this package sends a few."""
IMPATIENT = 1008
"""The websocket close code for a violated policy."""
log = logging.getLogger("equiflock.viewer")

Answer = bytes | dict[str, Any]


@dataclass(frozen=True)
class Asked:
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
        exhibit: what there is to choose from.
        workers: threads that fly. Kernels run on plain threads and without Python's lock, so sessions fly at once.
        archive: saves flights.
    """

    def __init__(self, exhibit: Exhibit, workers: Executor, archive: Archive) -> None:
        self.exhibit = exhibit
        self.shown: Stage | Playback | None = None
        self._workers = workers
        self._archive = archive
        self._saving: _Saving | None = None
        self._stop = Stop()
        """Cancels the search for the start that was requested last."""

    async def serve(self, socket: WebSocket) -> None:
        """Answer requests until the page disconnects; then free its flight, and cancel a search that is running."""
        # Reading and answering are two tasks, so that "cancel" is read while a search is running.
        waiting: asyncio.Queue[Asked] = asyncio.Queue()
        listening = asyncio.create_task(self._listen(socket, waiting))
        answering = asyncio.create_task(self._answer_all(socket, waiting))
        try:
            await asyncio.wait([listening, answering], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()
            gone = listening.done()  # the page has disconnected, so an answer that cannot be sent is expected
            for task in (listening, answering):
                task.cancel()
            await asyncio.gather(listening, answering, return_exceptions=True)
            self.shown = None
        # Answering ended by itself: raise its error, unless it was only that the page disconnected.
        if not gone:
            with suppress(WebSocketDisconnect):
                answering.result()

    async def _listen(self, socket: WebSocket, waiting: asyncio.Queue[Asked]) -> None:
        """Put requests into the queue until the page disconnects."""
        while (message := await socket.receive())["type"] == "websocket.receive":
            if waiting.qsize() >= MOST_WAITING:
                await socket.close(IMPATIENT, "wait for answers before you ask for more")
                return
            waiting.put_nowait(self._hear(message.get("text") or ""))

    async def _answer_all(self, socket: WebSocket, waiting: asyncio.Queue[Asked]) -> None:
        """Carry out requests one after the other, on a worker's thread, and send the answers."""
        await socket.send_json({"is": "welcome", **self.exhibit.told()})
        loop = asyncio.get_running_loop()
        while True:
            work = loop.run_in_executor(self._workers, self._answer, await waiting.get())
            # An answer may have to wait until kernels are compiled, which the page shows.
            while not (await asyncio.wait([work], timeout=PROGRESS_SECONDS))[0]:
                if (text := compiling.progress()) is not None:
                    await socket.send_json({"is": "compiling", "text": text})
            answer = work.result()
            if isinstance(answer, bytes):
                await socket.send_bytes(answer)
            else:
                await socket.send_json(answer)
            # Progress is told from here on, after the answer that saving has begun.
            if self._saving is not None and self._saving.task is None:
                self._saving.task = asyncio.create_task(self._saving.tell(socket))

    def answer(self, text: str) -> Answer:
        """Carry out the request in a message; if anything goes wrong, the answer says so in one line."""
        return self._answer(self._hear(text))

    def _hear(self, text: str) -> Asked:
        """Read a request. "start", "play" and "cancel" cancel the searches that were requested before."""
        try:
            request = requests.read_request(text)
        except InputError as error:
            return Asked(error, self._stop)
        if isinstance(request, requests.Start | requests.Play | requests.Cancel):
            self._stop.set()
            self._stop = Stop()
        return Asked(request, self._stop)

    def _answer(self, asked: Asked) -> Answer:
        try:
            if isinstance(asked.request, InputError):
                raise asked.request
            return self._do(asked.request, asked.stop)
        except SearchCancelledError as error:
            return {"is": "cancelled", "text": str(error)}
        except InputError as error:
            return {"is": "refused", "text": str(error)}
        except Exception as error:  # whatever somebody's controller may raise
            log.exception("a flight broke down")
            return self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, text: str) -> Answer:
        self.shown = None
        return {"is": "failed", "text": text}

    def _do(self, request: requests.Request, stop: Stop) -> Answer:
        if isinstance(request, requests.Cancel):
            return {"is": "done"}  # the search was cancelled when the request was read
        if isinstance(request, requests.Start):
            stage = Stage(request.setting, self.exhibit.load, stop)
            # Shown only now: if the search failed or was cancelled, the flight from before goes on.
            self.shown = stage
            return {"is": "started", **stage.told()}
        if isinstance(request, requests.Play):
            if not self.exhibit.flights:
                raise InputError("there is no saved flight to play: start equiflock view with one")
            playback = Playback(self.exhibit.flights, request.flock)
            told = playback.told(stop)
            self.shown = playback
            return {"is": "started", "playback": told}
        # All other requests are about what is shown.
        shown = self.shown
        if shown is None:
            raise InputError("nothing is flying: start a flight first")
        if isinstance(request, requests.Show):
            shown.edges = request.edges
        elif isinstance(request, requests.Seek) and isinstance(shown, Playback):
            shown.seek(request.frame)
        elif isinstance(request, requests.Advance) and isinstance(shown, Stage):
            try:
                shown.advance(request.steps)
            except InputError as error:  # such as NaN from a controller, or a flock that flew out of range
                return self._fail(str(error))
        elif isinstance(request, requests.Action) and isinstance(shown, Stage):
            request.on(shown)
            remarked = isinstance(request, requests.ChangeLaw) and shown.remark is not None
            return {"is": "done", **({"remark": shown.remark} if remarked else {})}
        elif isinstance(request, requests.Save) and isinstance(shown, Stage):
            return self._begin_to_save(shown, request.speed)
        else:
            # A request for a live flight while a saved one is shown, or the other way round.
            raise InputError("saved flights can only be looked at, and live ones have no frames to go to")
        return pack_frame(shown.step, shown.time, shown.pictures())

    def _begin_to_save(self, stage: Stage, speed: float) -> Answer:
        if self._saving is not None and not self._saving.work.done():
            raise InputError("a flight is being saved: wait for it")
        self._saving = _Saving(self._archive, stage, speed)
        return {"is": "saving"}


class _Saving:
    """A flight that is being saved; saving goes on even if its page disconnects."""

    def __init__(self, archive: Archive, stage: Stage, speed: float) -> None:
        runs = stage.trajectories()
        self.since = runs[0].config["begins_at"]
        self.drawn = 0, 0
        self.work: Future[Path] = archive.save(runs, speed, self._on_frame)
        self.task: asyncio.Task[None] | None = None
        """The task that sends progress to the page."""

    def _on_frame(self, done: int, total: int) -> None:
        self.drawn = done, total

    async def tell(self, socket: WebSocket) -> None:
        """Send the page its progress and in the end where the flight was saved, as long as the page is connected."""
        work = asyncio.wrap_future(self.work)
        with suppress(RuntimeError, WebSocketDisconnect):
            while not work.done():
                await asyncio.wait([work], timeout=PROGRESS_SECONDS)
                done, total = self.drawn
                await socket.send_json({"is": "progress", "done": done, "total": total})
            try:
                folder = work.result()
            except Exception as error:  # a full disk, a folder that must not be written to
                log.exception("a flight could not be saved")
                await socket.send_json({"is": "unsaved", "text": f"the flight could not be saved: {error}"})
            else:
                told = {"folder": str(folder.resolve()), "name": folder.name, "since": self.since}
                await socket.send_json({"is": "saved", **told})
