"""Standard output and standard error as consoles."""

from rich.console import Console

out = Console()
err = Console(stderr=True)
