"""One page's connection: what it asks for, done in turn, each request answered once."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect

from equiflock.types import InputError
from equiflock.viewer import requests
from equiflock.viewer.exhibit import Exhibit
from equiflock.viewer.frames import pack_frame
from equiflock.viewer.replay import Replay
from equiflock.viewer.saving import Archive
from equiflock.viewer.stage import Stage

PROGRESS_SECONDS = 0.25
log = logging.getLogger("equiflock.viewer")

Answer = bytes | dict[str, Any]


class Session:
    """What one page sees, and the requests that change it.

    A request is answered by a frame (bytes) or by a JSON object that says what it `is`: "started", "done", "saving",
    "refused" (the request made no sense; all is as it was) or "failed" (the flight broke down and is gone). A page that
    waits for answers is never sent more than it can draw. What is no answer: "welcome", and "progress", "saved" or
    "unsaved" of a flight that is being saved.

    Args:
        exhibit: what there is to choose from.
        workers: threads that fly. Kernels run on plain threads and without Python's lock, so sessions fly at once.
        archive: saves flights.
    """

    def __init__(self, exhibit: Exhibit, workers: Executor, archive: Archive) -> None:
        self.exhibit = exhibit
        self.shown: Stage | Replay | None = None
        self._workers = workers
        self._archive = archive
        self._saving: _Saving | None = None

    async def serve(self, socket: WebSocket) -> None:
        """Answer requests until the page goes away, and free its flight then."""
        await socket.send_json({"is": "welcome", **self.exhibit.told()})
        loop = asyncio.get_running_loop()
        try:
            while (message := await socket.receive())["type"] == "websocket.receive":
                answer = await loop.run_in_executor(self._workers, self.answer, message.get("text") or "")
                if isinstance(answer, bytes):
                    await socket.send_bytes(answer)
                else:
                    await socket.send_json(answer)
                if self._saving is not None and self._saving.task is None:
                    self._saving.task = asyncio.create_task(self._saving.tell(socket))
        except WebSocketDisconnect:
            pass  # while an answer was on its way
        finally:
            self.shown = None

    def answer(self, text: str) -> Answer:
        """Do what a message asks for. Whatever goes wrong, the answer says so in one line."""
        try:
            return self._do(requests.read_request(text))
        except InputError as error:
            return {"is": "refused", "text": str(error)}
        except Exception as error:  # whatever somebody's controller may raise
            log.exception("a flight broke down")
            return self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, text: str) -> Answer:
        self.shown = None
        return {"is": "failed", "text": text}

    def _do(self, request: requests.Request) -> Answer:
        if isinstance(request, requests.Start):
            pilots = [self.exhibit.pilot(name) for name in request.setting.controllers]
            self.shown = Stage(request.setting, pilots)
            return {"is": "started", "setting": request.setting.model_dump(mode="json")}
        if isinstance(request, requests.Replay):
            if not self.exhibit.flights:
                raise InputError("there is no saved flight to play: start equiflock view with one")
            self.shown = Replay(self.exhibit.flights, request.flock)
            return {"is": "started", "replay": self.shown.told()}
        shown = self.shown
        if shown is None:
            raise InputError("nothing is flying: start a flight first")
        if isinstance(request, requests.Show):
            shown.edges = request.edges
        elif isinstance(request, requests.Seek) and isinstance(shown, Replay):
            shown.seek(request.frame)
        elif isinstance(request, requests.Advance) and isinstance(shown, Stage):
            try:
                shown.advance(request.steps)
            except InputError as error:  # such as NaN from a controller, or a flock that flew out of range
                return self._fail(str(error))
        elif isinstance(request, requests.Action) and isinstance(shown, Stage):
            request.on(shown)
            return {"is": "done"}
        elif isinstance(request, requests.Save) and isinstance(shown, Stage):
            return self._begin_to_save(shown, request.speed)
        else:
            raise InputError("saved flights can only be looked at, and live ones have no frames to go to")
        return pack_frame(shown.step, shown.time, shown.panels())

    def _begin_to_save(self, stage: Stage, speed: float) -> Answer:
        if self._saving is not None and not self._saving.work.done():
            raise InputError("a flight is being saved: wait for it")
        self._saving = _Saving(self._archive, stage, speed)
        return {"is": "saving"}


class _Saving:
    """A flight that is being saved, if its page stays or not."""

    def __init__(self, archive: Archive, stage: Stage, speed: float) -> None:
        runs = stage.trajectories()
        self.since = runs[0].config["begins_at"]
        self.drawn = 0, 0
        self.work: Future[Path] = archive.save(runs, speed, self._on_frame)
        self.task: asyncio.Task[None] | None = None
        """Tells the page."""

    def _on_frame(self, done: int, total: int) -> None:
        self.drawn = done, total

    async def tell(self, socket: WebSocket) -> None:
        """Tell the page how far it is, and in the end where the flight is, as long as the page is there."""
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
