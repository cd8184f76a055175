"""The server: the page's files, and a websocket for every page that is open."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from typing_extensions import override

from equiflock.runtime.checks import InputError
from equiflock.viewer.deadlines import PROTOCOLS
from equiflock.viewer.flight_archive import FILM_NAME, FlightArchive
from equiflock.viewer.requests import MAX_REQUEST_BYTES
from equiflock.viewer.session import Session
from equiflock.viewer.viewer_config import ViewerConfig

log = logging.getLogger("equiflock.viewer")
PAGE_DIR = Path(__file__).with_name("page")
MAX_SESSIONS = 16
"""Pages that may be open at once."""
MAX_PORT_ATTEMPTS = 20
"""Ports that are tried, one after the other, if the first is in use."""
CLOSE_TRY_AGAIN_LATER = 1013
"""The websocket close code for "try again later"."""
RESPONSE_HEADERS = {
    # No content from other servers, no embedding in other pages, and never an old page from a cache with a new server.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def create_app(viewer_config: ViewerConfig, host: str) -> FastAPI:
    """The application: / is the page, /flight the websocket, /saved/NAME/film.mp4 a film that was saved.

    Only pages from this server may talk to it: requests must name it as their host, and a websocket must come from a
    page of that host and port, so no other page that is open in the same browser can fly flocks or save files here. The
    port may be that of a tunnel.
    """
    app = FastAPI(openapi_url=None)
    # One thread per page, so that a long search of one page holds up no other.
    workers = ThreadPoolExecutor(MAX_SESSIONS, thread_name_prefix="flight")
    app.state.archive = archive = FlightArchive(viewer_config.out)
    # Another name that resolves to this machine may be that of a foreign page (DNS rebinding), so it is refused.
    names = {host.lower(), "localhost", "127.0.0.1", "::1"}
    app.state.sessions = set()

    @app.middleware("http")
    async def only_from_here(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuse requests that call the server by a foreign name, and add headers to all answers."""
        if _parse_host_name(request.headers) not in names:
            return Response("this server is known by another name", status_code=400)
        response = await call(request)
        response.headers.update(RESPONSE_HEADERS)
        return response

    @app.websocket("/flight")
    async def flight(websocket: WebSocket) -> None:
        """The connection of a page, as long as it is open."""
        headers = websocket.headers
        if _parse_host_name(headers) not in names or headers.get("origin") != f"http://{headers['host']}":
            await websocket.close()  # before it was accepted: refused as forbidden
            return
        await websocket.accept()
        sessions: set[Session] = app.state.sessions
        # Accepted first, since only an open websocket can be closed with a code and a text that the page shows.
        if len(sessions) >= MAX_SESSIONS:
            await websocket.close(CLOSE_TRY_AGAIN_LATER, f"{MAX_SESSIONS} pages are open already: close one")
            return
        session = Session(viewer_config, workers, archive)
        sessions.add(session)
        try:
            await session.serve(websocket)
        finally:
            sessions.remove(session)

    @app.get("/saved/{name}/film.mp4")
    async def film(name: str) -> FileResponse:
        """A film that was saved since the server started; the name is looked up, never used as a path."""
        if name not in archive.saved_dirs:
            raise HTTPException(404, "no such flight was saved since the server started")
        return FileResponse(archive.saved_dirs[name] / FILM_NAME, filename=f"{name}.mp4")

    app.mount("/", StaticFiles(directory=PAGE_DIR, html=True))
    return app


def open_listening_socket(host: str, port: int, on_busy: Callable[[int], object]) -> socket.socket:
    """A listening socket on the port or the next that is free; `on_busy` is called with each that is in use."""
    if not 0 <= port <= 65535:
        raise InputError(f"port must be from 0 to 65535; got {port}")
    _check_not_wildcard(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + MAX_PORT_ATTEMPTS, 65536)):
        found = socket.socket(family)
        # A port that a server has just left may be used again at once.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, candidate))
            _check_not_wildcard(found.getsockname()[0])  # which may have other names
            found.listen()
        except PermissionError:
            found.close()
            raise InputError(f"port {candidate} must not be used: choose one above 1023") from None
        except InputError:
            found.close()
            raise
        except OSError as error:
            found.close()
            if isinstance(error, socket.gaierror) or error.errno != errno.EADDRINUSE:
                raise InputError(f"{host} is not an address of this machine: {error.strerror}") from None
            on_busy(candidate)
            continue
        return found
    raise InputError(f"ports {port} to {candidate} are all in use: choose another with --port")


def _check_not_wildcard(address: str) -> None:
    """Refuse 0.0.0.0 and ::, which mean all addresses of the machine, also where IPv6 wraps the IPv4 form."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return  # a name
    within = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    if (within or found).is_unspecified:
        raise InputError("name one address of this machine: a page could call all of them by any name")


class Server(uvicorn.Server):
    """A server that waits for a flight that is being saved: a killed thread would leave its scratch folder behind."""

    def __init__(self, config: uvicorn.Config, archive: FlightArchive) -> None:
        super().__init__(config)
        self._archive = archive

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the server after the flight that is being saved; a second Ctrl-C cancels saving."""
        await super().shutdown(sockets)
        if self._archive.is_busy:
            log.warning("a flight is being saved: waiting for it (Ctrl-C once more gives it up)")
        while self._archive.is_busy:
            if self.force_exit:
                self._archive.cancel_all()
            await asyncio.sleep(0.05)


def make_server(viewer_config: ViewerConfig, host: str) -> Server:
    """A server whose pages call it `host`, ready to `run` on a socket."""
    app = create_app(viewer_config, host)
    return Server(
        uvicorn.Config(
            app,
            **PROTOCOLS,
            log_level="warning",
            ws_max_size=MAX_REQUEST_BYTES,
            ws_max_queue=8,
            ws_per_message_deflate=False,  # within a machine, sending bytes is cheaper than compressing them
        ),
        app.state.archive,
    )


def address(host: str, port: int) -> str:
    """The address of the page, for a browser."""
    return f"http://{_format_host(host)}:{port}/"


def _parse_host_name(headers: Headers) -> str | None:
    """The host name in a request's headers, without the port."""
    with suppress(ValueError):  # such as brackets that do not close
        return urlsplit(f"//{headers.get('host', '')}").hostname
    return None


def _format_host(host: str) -> str:
    # IPv6 addresses stand in brackets, as their colons would be taken for that of the port.
    return f"[{host}]" if ":" in host else host
