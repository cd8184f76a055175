"""Film files: ffmpeg encodes frames as MP4, WebP or GIF."""

from __future__ import annotations

import errno
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe
from matplotlib.backends.backend_agg import FigureCanvasAgg

from equiflock._runtime.checks import InputError, check_count, check_positive
from equiflock._runtime.files import atomic_write, check_writable

CODECS = {
    ".mp4": ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "23", "-preset", "slow", "-movflags", "+faststart"],
    ".webp": ["-c:v", "libwebp_anim", "-quality", "75", "-compression_level", "4", "-loop", "0"],
    # One palette for the whole film, computed from its frames.
    ".gif": ["-vf", "split[a][b];[a]palettegen=max_colors=96[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"],
}
FORMATS = tuple(CODECS)


def check_film(path: str | os.PathLike[str], speed: float, frames_per_second: int, dots_per_inch: int) -> None:
    """Raise InputError if the suffix, a number or the directory of a film is invalid."""
    if Path(path).suffix not in FORMATS:
        raise InputError(
            f"the file name of a film must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; got {Path(path).name!r}"
        )
    check_positive("speed", speed)
    check_count("frames_per_second", frames_per_second)
    if not 20 <= dots_per_inch <= 600:
        raise InputError(f"dots_per_inch must be from 20 to 600; got {dots_per_inch}")
    check_writable(path)


def count_frames(film_seconds: float, frames_per_second: int) -> int:
    """Return the number of frames of a film, the final state included."""
    return max(math.ceil(film_seconds * frames_per_second - 1e-6), 1) + 1


def write_frames(
    path: str | os.PathLike[str],
    canvas: FigureCanvasAgg,
    draw: Callable[[int], object],
    count: int,
    frames_per_second: int,
    on_frame: Callable[[int, int], object] | None,
) -> Path:
    """Write a film of `count` frames; `draw` draws the frame of an index on the canvas.

    `on_frame` is called with (frames drawn, total frames) after every frame.
    """
    # The codec requires even numbers of pixels.
    width, height = (int(v) // 2 * 2 for v in canvas.get_width_height())
    with atomic_write(path) as scratch, _open_encoder(scratch, width, height, frames_per_second) as send:
        for n in range(count):
            draw(n)
            image = np.asarray(canvas.buffer_rgba())[:height, :width, :3]
            send(np.ascontiguousarray(image).tobytes())
            if on_frame is not None:
                on_frame(n + 1, count)
    return Path(path)


@contextmanager
def _open_encoder(path: Path, width: int, height: int, frames_per_second: int) -> Iterator[Callable[[bytes], object]]:
    """Start ffmpeg, which writes to `path`, and yield a function that sends it a frame (RGB bytes).

    Raise OSError at the end of the block if ffmpeg failed. The process has ended when the block is left.
    """
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(frames_per_second), "-i", "-"]
    command = [get_ffmpeg_exe(), "-v", "error", "-y", *source, *CODECS[path.suffix], str(path)]
    # In a new session, Ctrl-C in the terminal does not reach ffmpeg; this process handles it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    stdin = cast(IO[bytes], process.stdin)
    try:
        # If ffmpeg exits early, the pipe breaks; its exit code is checked below.
        with suppress(BrokenPipeError):
            yield lambda frame: stdin.write(frame)
        _, errors = process.communicate()
        if process.returncode != 0:
            is_full = b"No space left" in errors
            reason = errors.decode(errors="replace").strip().splitlines() or ["ffmpeg failed"]
            raise OSError(errno.ENOSPC if is_full else errno.EIO, f"the film could not be written: {reason[-1]}")
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stderr):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()
