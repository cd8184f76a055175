"""Rich consoles on standard output and standard error."""

from rich.console import Console

out = Console()
err = Console(stderr=True)
