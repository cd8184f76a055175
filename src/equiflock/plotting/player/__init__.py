"""The player: draws and plays flights in a browser, without a server. The live page is built on it."""

from pathlib import Path

PLAYER_DIR = Path(__file__).with_name("web")
"""Directory of the player's ES modules and style sheets."""
