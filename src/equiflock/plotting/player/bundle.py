"""The player as one script and one style sheet, for pages without a server.

Modules in data: URLs would need no rewriting, but notebooks in editors refuse them; they accept inline scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache

from equiflock.plotting.player import PLAYER_DIR

STYLE_SHEETS = "theme.css", "stage.css", "plots.css", "player.css"
COMMENT = re.compile(r"^ */\*.*?\*/\n", re.MULTILINE | re.DOTALL)
"""A comment that has its lines for itself."""
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def bundle_player() -> str:
    """Return a script element that builds a player in each element that `embed_flights` returned."""
    return f'<script type="module">{_build_script()}</script>'


def make_security_policy(*scripts: str) -> str:
    """Return a meta element for the head of a page: it runs the player's script only, and loads and sends nothing.

    `scripts` are the contents of further script elements that run.
    """
    digests = [
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (_build_script(), *scripts)
    ]
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data:; media-src data:"
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


@cache
def _build_script() -> str:
    """Return the script: each module is a function that returns its exports, after the modules that it imports."""
    modules: dict[str, str] = {}
    _add_module("player", modules, ())
    styles = COMMENT.sub("", "".join((PLAYER_DIR / name).read_text("utf-8") for name in STYLE_SHEETS))
    script = "const modules = {};\n" + "".join(modules.values())
    script += f"modules.player.mountPlayers(document, {to_script_json(styles)});\n"
    if "</script" in script.lower() or "<!--" in script:
        raise AssertionError("the player's modules must not contain </script or <!--, which would end the script")
    return script


def to_script_json(value: object) -> str:
    """Return JSON that is safe inside a script element: without <, which could end it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _add_module(name: str, modules: dict[str, str], importers: tuple[str, ...]) -> None:
    """Add a module to `modules`, in which a name has its code, after all that it imports."""
    if name in modules:
        return
    if name in importers:
        raise AssertionError(f"the player's modules must not import each other in a circle: {name}")
    code = COMMENT.sub("", (PLAYER_DIR / f"{name}.js").read_text("utf-8"))
    for _, imported in IMPORT.findall(code):
        _add_module(imported, modules, (*importers, name))
    exports = ", ".join(EXPORT.findall(code))
    code = IMPORT.sub(lambda match: f"const {{{match[1].replace(' as ', ': ')}}} = modules.{match[2]};", code)
    code = EXPORT.sub("", code)
    if re.search(r"^(import|export)\b", code, re.MULTILINE):
        raise AssertionError(f"{name}.js must import and export by name, at the start of a line, for the bundle")
    modules[name] = f"modules.{name} = (() => {{\n{code}return {{ {exports} }};\n}})();\n"
