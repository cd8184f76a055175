"""Plugins: a user's module that registers parts such as controllers, and the source files that these depend on."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import compute_checksum, compute_file_checksum
from equiflock.runtime.provenance import list_differences, set_plugin_checksums

PACKAGE_DIR = Path(__file__).parent.parent
_plugin_modules: dict[str, dict[str, Path]] = {}
"""For each plugin, the files of all modules that its import brought in, by the modules' names."""
_plugin_checksums: dict[str, dict[str, str]] = {}
"""For each plugin, its sources (see `collect_plugin_sources`) as they were when it was imported."""


def import_plugin(name: str | None, sources: Mapping[str, str] | None = None) -> None:
    """Import a user's module, by name or as a .py file, so that what it registers has a name.

    Args:
        name: the module or file; nothing is done if it is None.
        sources: its `collect_plugin_sources` in the process of the command; an error if they differ here.
    """
    if name is None:
        return
    path = Path(name)
    if path.suffix == ".py" and not path.is_file():
        raise InputError(f"--plugin {name}: there is no such file")
    # A file is imported by its own name from its folder, a module as from the current folder.
    folder = str((path.parent if path.suffix == ".py" else Path()).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before = set(sys.modules)
    try:
        if path.suffix == ".py":
            _check_not_shadowed(path)
        importlib.import_module(_get_module_name(name))
    except InputError as error:
        raise InputError(f"--plugin {name}: {error}") from None
    except Exception as error:  # whatever happens while somebody else's module is read
        raise InputError(
            f"--plugin {name} could not be imported: {type(error).__name__}: {_format_one_line(error)}"
        ) from None
    # Checksums are taken once, at the import: later changes of the files do not change what runs.
    if name not in _plugin_checksums:
        new = {module: sys.modules[module] for module in set(sys.modules) - before}
        files = {module: getattr(found, "__file__", None) for module, found in new.items()}
        _plugin_modules[name] = {module: Path(file).resolve() for module, file in files.items() if file}
        _plugin_checksums[name] = collect_plugin_sources(name)
    set_plugin_checksums(_plugin_checksums[name])
    if sources is not None and _plugin_checksums[name] != sources:
        other = ", ".join(list_differences(sources, _plugin_checksums[name]))
        raise InputError(
            f"--plugin {name} is not what it was where the command was given: {other} (changed meanwhile? "
            "workers of a cluster must be started again after a change)"
        )


def _format_one_line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())


def collect_plugin_sources(name: str | None) -> dict[str, str]:
    """The source files that an imported plugin depends on, with their checksums.

    These are its own file or package, and whatever it imports, be it inside a function, that is neither equiflock, nor
    Python's own library, nor an installed package. Files that it reads as data are not among them.
    """
    if name is None:
        return {}
    # Found by reading import lines, which also finds imports inside functions, and by what Python did import.
    place = _PluginLocation.from_module(_get_module_name(name))
    files = place.find_imported_modules() | {
        module: path for module, path in _plugin_modules[name].items() if place.owns(module, path)
    }
    return {told: compute_file_checksum(path) for told, path in sorted((place.told(p), p) for p in files.values())}


def compute_plugin_checksum(name: str | None) -> str:
    """The checksum of all these files, by which results of another plugin have other names; empty without a plugin."""
    return compute_checksum(json.dumps(collect_plugin_sources(name), sort_keys=True).encode()) if name else ""


@contextmanager
def convert_plugin_errors(name: str | None) -> Iterator[None]:
    """Turn an error that a plugin raises in flight into one line, with its place in the user's files."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        if name is None:
            raise  # a mistake of this package
        # The innermost line of the user's own code, not that of a library it calls.
        theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_code(Path(frame.filename))]
        place = f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else ""
        raise InputError(f"--plugin {name} failed: {type(error).__name__}: {error}{place}") from None


def _is_user_code(path: Path) -> bool:
    return not (_is_library(path) or path.is_relative_to(PACKAGE_DIR))


def _get_module_name(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


def _check_not_shadowed(path: Path) -> None:
    """A clear error if Python knows another module by the name of this file, and would import that one."""
    importlib.invalidate_caches()  # the file may be younger than what Python knows of its folder
    spec = importlib.util.find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path.resolve():
        raise InputError(f"Python has another module named {path.stem!r} and would import that one: rename the file")


@dataclass(frozen=True)
class _PluginLocation:
    """The folder of a plugin, and those where its own imports are searched."""

    module: str
    root_dir: Path
    """The folder that holds the plugin's file or outermost package."""
    search_dirs: tuple[Path, ...]
    """Other folders that Python imports from, except those of installed packages."""

    @classmethod
    def from_module(cls, module: str) -> _PluginLocation:
        """The place of a module that was imported."""
        outermost = sys.modules[module.partition(".")[0]]
        is_package = hasattr(outermost, "__path__")
        root_dir = Path(next(iter(outermost.__path__)) if is_package else outermost.__file__ or ".").resolve().parent
        folders = [Path(folder).resolve() for folder in sys.path]
        return cls(module, root_dir, tuple(folder for folder in folders if folder.is_dir() and not _is_library(folder)))

    @property
    def outermost(self) -> str:
        """The name of the plugin's outermost package, or its own."""
        return self.module.partition(".")[0]

    def owns(self, module: str, path: Path) -> bool:
        """Whether a module that the plugin imported belongs to the user: the plugin's own, or from the same folder."""
        outermost = module.partition(".")[0]
        beside = path.is_relative_to(self.root_dir) and not _is_library(path)
        return path.is_file() and outermost != "equiflock" and (outermost == self.outermost or beside)

    def told(self, path: Path) -> str:
        """A file's path relative to its root folder, which is the same on every machine."""
        root = next(
            (folder for folder in (self.root_dir, *self.search_dirs) if path.is_relative_to(folder)), path.parent
        )
        return path.relative_to(root).as_posix()

    def find_imported_modules(self) -> dict[str, Path]:
        """The user's modules that the plugin imports, and those that these import, found by reading them."""
        found: dict[str, Path] = {}
        waiting = list(_iter_parent_packages(self.module))
        while waiting:
            module = waiting.pop()
            path = None if module in found else self._find_file(module)
            if path is not None:
                found[module] = path
                waiting += _iter_imports(path, module)
        return found

    def _find_file(self, module: str) -> Path | None:
        """The file of a module of the user's, by Python's rules; None if it is not the user's."""
        for folder in self._list_search_dirs(module.partition(".")[0]):
            *packages, last = module.split(".")
            base = folder.joinpath(*packages)
            for path in (base / last / "__init__.py", base / f"{last}.py"):
                if path.is_file():
                    return path.resolve()
        return None

    def _list_search_dirs(self, outermost: str) -> Sequence[Path]:
        if outermost == "equiflock":
            return ()
        if outermost == self.outermost:
            return (self.root_dir,)
        return self.search_dirs if _is_library(self.root_dir) else (self.root_dir, *self.search_dirs)


def _iter_imports(path: Path, module: str) -> Iterator[str]:
    """The modules that a file names in its import lines, wherever they are in it, and the packages around them."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # Python reports it if the file is ever imported
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _iter_parent_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            # Dots in front of a name count packages upwards from the file's own.
            around = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*around, *([node.module] if node.module else [])])
            yield from _iter_parent_packages(origin)
            yield from (f"{origin}.{alias.name}" for alias in node.names)  # which may be modules


def _iter_parent_packages(module: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = module.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def _is_library(path: Path) -> bool:
    """Whether a file or folder belongs to Python or to an installed package, whose versions are kept instead."""
    paths = sysconfig.get_paths()
    own = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    return any(path.is_relative_to(folder) for folder in own) or bool(
        {"site-packages", "dist-packages"} & set(path.parts)
    )
