"""The server: serves the page's files, and a websocket for each open page."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from typing_extensions import override

from equiflock._runtime.checks import InputError
from equiflock.plotting.player import PLAYER_DIR
from equiflock.viewer.deadlines import TimeoutHttpProtocol, TimeoutWebSocketProtocol
from equiflock.viewer.flight_archive import FILM_NAME, FlightArchive
from equiflock.viewer.page_files import PAGE_DIR, PLAYER_URL, make_preload_header
from equiflock.viewer.protocol import MAX_REQUEST_BYTES
from equiflock.viewer.session import Session
from equiflock.viewer.viewer_config import ViewerConfig

log = logging.getLogger("equiflock.viewer")
MAX_SESSIONS = 16
"""Maximum number of open pages."""
MAX_PORT_ATTEMPTS = 20
"""Number of consecutive ports to try if the first is in use."""
CLOSE_TRY_AGAIN_LATER = 1013
"""Websocket close code "try again later"."""
RESPONSE_HEADERS = {
    # No content from other servers, no embedding in other pages, no cached page of an older server.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def create_app(viewer_config: ViewerConfig, host: str) -> FastAPI:
    """Return the application: / is the page, /flight the websocket, /saved/NAME/film.mp4 a saved film.

    The Host header must name the server (`host`, localhost, 127.0.0.1 or ::1), and the origin of a websocket must be
    that host and port, so that no other page in the same browser can run flights or save files here. The port may be
    that of a tunnel. With MAX_SESSIONS open pages, another one is closed with CLOSE_TRY_AGAIN_LATER.
    """
    app = FastAPI(openapi_url=None)
    # One thread per page, so that a long search does not block other pages.
    workers = ThreadPoolExecutor(MAX_SESSIONS, thread_name_prefix="flight")
    app.state.archive = archive = FlightArchive(viewer_config.out)
    # Other names that resolve to this machine are refused, as they may belong to a foreign page (DNS rebinding).
    names = {host.lower(), "localhost", "127.0.0.1", "::1"}
    app.state.sessions = set()
    preload_header = make_preload_header()

    @app.middleware("http")
    async def check_host(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuse a foreign Host header with status 400, and add RESPONSE_HEADERS to all other responses."""
        if _parse_host_name(request.headers) not in names:
            return Response("the Host header does not name this server", status_code=400)
        response = await call(request)
        response.headers.update(RESPONSE_HEADERS)
        if request.url.path == "/":
            response.headers["Link"] = preload_header
        return response

    @app.websocket("/flight")
    async def flight(websocket: WebSocket) -> None:
        """Serve the websocket of a page until it closes; refuse foreign hosts and origins, and too many pages."""
        headers = websocket.headers
        if _parse_host_name(headers) not in names or headers.get("origin") != f"http://{headers['host']}":
            await websocket.close()  # before accepting: responds 403
            return
        await websocket.accept()
        sessions: set[Session] = app.state.sessions
        # Only an accepted websocket can be closed with a code and a reason, which the page shows.
        if len(sessions) >= MAX_SESSIONS:
            await websocket.close(CLOSE_TRY_AGAIN_LATER, f"{MAX_SESSIONS} pages are open, the maximum: close one")
            return
        session = Session(viewer_config, workers, archive)
        sessions.add(session)
        try:
            await session.serve(websocket)
        finally:
            sessions.remove(session)

    @app.get("/saved/{name}/film.mp4")
    async def film(name: str) -> FileResponse:
        """Serve a film saved since the server started; the name is looked up, never used as a path."""
        if name not in archive.saved_dirs:
            raise HTTPException(404, "no flight of this name was saved since the server started")
        return FileResponse(archive.saved_dirs[name] / FILM_NAME, filename=f"{name}.mp4")

    app.mount(f"/{PLAYER_URL}", StaticFiles(directory=PLAYER_DIR))
    app.mount("/", StaticFiles(directory=PAGE_DIR, html=True))
    return app


def open_listening_socket(host: str, port: int, on_busy: Callable[[int], object]) -> socket.socket:
    """Return a listening socket on the first free port of up to MAX_PORT_ATTEMPTS from `port` on; 0 is any free port.

    `on_busy` is called with each port that is in use. Raise InputError if all are, if one needs permission, or if the
    host is a wildcard or no address of this machine.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"port must be from 0 to 65535; got {port}")
    _check_not_wildcard(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + MAX_PORT_ATTEMPTS, 65536)):
        # With the protocol named, asyncio sends small packets at once; else each answer would take 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # Allow the port of a server that has just ended.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, candidate))
            _check_not_wildcard(listening.getsockname()[0])  # a host name may resolve to a wildcard
            listening.listen()
            return listening
        except InputError:
            listening.close()
            raise
        except OSError as error:
            listening.close()
            if isinstance(error, PermissionError):
                raise InputError(f"no permission to use port {candidate}: choose one above 1023 with --port") from None
            if isinstance(error, socket.gaierror) or error.errno != errno.EADDRINUSE:
                raise InputError(f"{host} is not an address of this machine: {error.strerror}") from None
            on_busy(candidate)
    raise InputError(f"ports {port} to {candidate} are all in use: choose another with --port")


def _check_not_wildcard(address: str) -> None:
    """Raise InputError for 0.0.0.0, :: and ::ffff:0.0.0.0, which mean all addresses; any host name passes."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return  # a host name
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    if (mapped or parsed).is_unspecified:
        raise InputError(
            f"--host must be a single address, not a wildcard: with {address} the server cannot check the Host header"
        )


class Server(uvicorn.Server):
    """A server that waits for unfinished saves on shutdown: a killed thread would leave its scratch directory."""

    def __init__(self, config: uvicorn.Config, archive: FlightArchive) -> None:
        super().__init__(config)
        self._archive = archive

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections, then wait until no save is queued or running; a second Ctrl-C cancels the saves."""
        await super().shutdown(sockets)
        if self._archive.is_busy:
            log.warning("waiting for a flight to be saved (press Ctrl-C again to cancel)")
        while self._archive.is_busy:
            if self.force_exit:
                self._archive.cancel_all()
            await asyncio.sleep(0.05)


def make_server(viewer_config: ViewerConfig, host: str) -> Server:
    """Return a server, not yet running, for pages at `host`; `run([socket])` serves them until it is interrupted."""
    app = create_app(viewer_config, host)
    return Server(
        uvicorn.Config(
            app,
            http=TimeoutHttpProtocol,
            ws=TimeoutWebSocketProtocol,
            log_level="warning",
            ws_max_size=MAX_REQUEST_BYTES,
            ws_max_queue=8,
            ws_per_message_deflate=False,  # on the same machine, sending is cheaper than compressing
        ),
        app.state.archive,
    )


def address(host: str, port: int) -> str:
    """Return the URL of the page, with a slash at its end; IPv6 addresses are in brackets."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _parse_host_name(headers: Headers) -> str | None:
    """Return the host name in the Host header, in lower case without the port; None if missing or malformed."""
    with suppress(ValueError):
        return urlsplit(f"//{headers.get('host', '')}").hostname
    return None
