"""One page's connection: what it asks for, done in turn, each request answered once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import WebSocket, WebSocketDisconnect

from equiflock.trajectory import Trajectory
from equiflock.types import InputError
from equiflock.viewer import requests
from equiflock.viewer.exhibit import Exhibit
from equiflock.viewer.frames import pack_frame
from equiflock.viewer.replay import Replay
from equiflock.viewer.saving import save_flights
from equiflock.viewer.stage import Stage

PROGRESS_SECONDS = 0.25
log = logging.getLogger("equiflock.viewer")

Answer = bytes | dict[str, Any]
Result = TypeVar("Result")


class Session:
    """What one page sees, and the requests that change it.

    A request is answered by a frame (bytes) or by a JSON object that says what it `is`: "started", "saving", "refused"
    (the request made no sense; all is as it was) or "failed" (the flight broke down and is gone). A page that waits for
    answers is never sent more than it can draw. What is no answer: "welcome", and "progress", "saved" or "unsaved" of a
    flight that is being saved.

    Args:
        exhibit: what there is to choose from.
        workers: threads that fly. Kernels run on plain threads and without Python's lock, so sessions fly at once.
        saved: name -> folder, of all flights that were saved; those of this session are added.
    """

    def __init__(self, exhibit: Exhibit, workers: Executor, saved: dict[str, Path]) -> None:
        self.exhibit = exhibit
        self.shown: Stage | Replay | None = None
        self._workers = workers
        self._saved = saved
        self._to_save: list[Trajectory] = []
        self._saving: asyncio.Task[None] | None = None

    async def serve(self, socket: WebSocket) -> None:
        """Answer requests until the page goes away."""
        await socket.send_json({"is": "welcome", **self.exhibit.told()})
        with suppress(WebSocketDisconnect):  # while an answer was on its way
            while (message := await socket.receive())["type"] == "websocket.receive":
                answer = await self._in_thread(partial(self.answer, message.get("text") or ""))
                if isinstance(answer, bytes):
                    await socket.send_bytes(answer)
                else:
                    await socket.send_json(answer)
                if self._to_save:
                    self._saving = asyncio.create_task(self._save(socket))

    def answer(self, text: str) -> Answer:
        """Do what a message asks for. Whatever goes wrong, the answer says so in one line."""
        try:
            request = requests.read_request(text)
        except InputError as error:
            return {"is": "refused", "text": str(error)}
        try:
            return self._do(request)
        except InputError as error:
            if isinstance(request, requests.Advance):
                return self._fail(str(error))  # such as NaN from a controller, or a flock that flew out of range
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
        elif isinstance(request, requests.Action) and isinstance(shown, Stage):
            request.on(shown)
        elif isinstance(request, requests.Save) and isinstance(shown, Stage):
            return self._begin_to_save(shown)
        else:
            raise InputError("saved flights can only be looked at, and live ones have no frames to go to")
        return pack_frame(shown.step, shown.time, shown.panels())

    def _begin_to_save(self, stage: Stage) -> Answer:
        if self._saving is not None and not self._saving.done():
            raise InputError("a flight is being saved: wait for it")
        self._to_save = stage.trajectories()
        return {"is": "saving"}

    async def _save(self, socket: WebSocket) -> None:
        """Save what was flown, telling the page how far it is; if the page goes away it is saved all the same."""
        progress = {"done": 0, "total": 0}

        def on_frame(done: int, total: int) -> None:
            progress.update(done=done, total=total)

        runs, self._to_save = self._to_save, []
        work = asyncio.ensure_future(self._in_thread(partial(save_flights, runs, self.exhibit.out, on_frame)))
        while not work.done():
            await asyncio.wait([work], timeout=PROGRESS_SECONDS)
            await _tell(socket, {"is": "progress", **progress})
        try:
            folder = work.result()
        except Exception as error:  # a full disk, a folder that must not be written to
            log.exception("a flight could not be saved")
            await _tell(socket, {"is": "unsaved", "text": f"the flight could not be saved: {error}"})
            return
        self._saved[folder.name] = folder
        since = runs[0].config["begins_at"]
        await _tell(socket, {"is": "saved", "folder": str(folder), "name": folder.name, "since": since})

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)


async def _tell(socket: WebSocket, message: dict[str, Any]) -> None:
    """Send what is no answer, to a page that may have gone away."""
    with suppress(RuntimeError, WebSocketDisconnect):
        await socket.send_json(message)
