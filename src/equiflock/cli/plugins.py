"""Plugins: user modules that register parts such as controllers or metrics, and checksums of their source files."""

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

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_checksum, compute_file_checksum
from equiflock._runtime.provenance import list_differences, set_plugin_checksums

PACKAGE_DIR = Path(__file__).parent.parent
_plugin_modules: dict[str, dict[str, Path]] = {}
"""For each plugin, the files of all modules that its import loaded, by module name."""
_plugin_checksums: dict[str, dict[str, str]] = {}
"""For each plugin, its `collect_plugin_sources` at the time of its import."""


def import_plugin(name: str | None, sources: Mapping[str, str] | None = None) -> None:
    """Import a user's module, by its name or .py file, which may register controllers, scenarios, bodies and metrics.

    Its directory is put first in `sys.path`. Checksums of its source files are recorded at the first import. Raise
    InputError if the import fails, or if `sources`, those of the command's process, differ in this one.
    """
    if name is None:
        return
    path = Path(name)
    if path.suffix == ".py" and not path.is_file():
        raise InputError(f"--plugin {name}: there is no such file")
    # A file is imported from its own directory, a module from the current directory.
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
    except Exception as error:  # the user's module may raise anything
        message = " ".join(str(error).split())
        raise InputError(f"--plugin {name} could not be imported: {type(error).__name__}: {message}") from None
    # Compute checksums once, at import: later changes of the files do not affect the loaded code.
    if name not in _plugin_checksums:
        files = {module: getattr(sys.modules[module], "__file__", None) for module in set(sys.modules) - before}
        _plugin_modules[name] = {module: Path(file).resolve() for module, file in files.items() if file}
        _plugin_checksums[name] = collect_plugin_sources(name)
    set_plugin_checksums(_plugin_checksums[name])
    if sources is not None and _plugin_checksums[name] != sources:
        differences = ", ".join(list_differences(sources, _plugin_checksums[name]))
        raise InputError(
            f"--plugin {name} differs between the command and this worker: {differences} (after a change of the "
            "plugin, restart the workers of the cluster)"
        )


def collect_plugin_sources(name: str | None) -> dict[str, str]:
    """Return the checksums of the source files that an imported plugin depends on, by relative path.

    These are its file or package and all modules that it imports, also inside functions, except equiflock, the standard
    library and installed packages. Data files that it reads are not included.
    """
    if name is None:
        return {}
    # Read import statements, which also finds imports inside functions, and add what Python did import.
    location = _PluginLocation.from_module(_get_module_name(name))
    files = location.find_imported_modules() | {
        module: path for module, path in _plugin_modules[name].items() if location.owns(module, path)
    }
    named_paths = sorted((location.get_relative_path(path), path) for path in files.values())
    return {name: compute_file_checksum(path) for name, path in named_paths}


def compute_plugin_checksum(name: str | None) -> str:
    """Return one checksum of all source files, which is part of the names of results; "" without a plugin."""
    return compute_checksum(json.dumps(collect_plugin_sources(name), sort_keys=True).encode()) if name else ""


@contextmanager
def convert_plugin_errors(name: str | None) -> Iterator[None]:
    """Convert an exception in this block into an InputError that names the last line of the user's code, if any.

    InputError, OSError and MemoryError pass unchanged, and so does any exception if `name` is None.
    """
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        if name is None:
            raise  # a bug of this package
        # Name the innermost line of the user's code, not of a library that it calls.
        places = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        places = [(path, line) for path, line in places if not (_is_library(path) or path.is_relative_to(PACKAGE_DIR))]
        place = f" ({places[-1][0].name}, line {places[-1][1]})" if places else ""
        raise InputError(f"--plugin {name} failed: {type(error).__name__}: {error}{place}") from None


def _get_module_name(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


def _check_not_shadowed(path: Path) -> None:
    """Raise InputError if Python would import another module of the same name in place of this file."""
    importlib.invalidate_caches()  # the file may be newer than Python's cache of its directory
    spec = importlib.util.find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path.resolve():
        raise InputError(f"Python would import another module named {path.stem!r} instead: rename the file")


@dataclass(frozen=True)
class _PluginLocation:
    """Directory of a plugin, and the directories that its imports are searched in."""

    module: str
    root_dir: Path
    """Directory that holds the plugin's file or outermost package."""
    search_dirs: tuple[Path, ...]
    """Other directories that Python imports from, except those of installed packages."""

    @classmethod
    def from_module(cls, module: str) -> _PluginLocation:
        """Return the location of an imported module."""
        outermost = sys.modules[module.partition(".")[0]]
        is_package = hasattr(outermost, "__path__")
        root_dir = Path(next(iter(outermost.__path__)) if is_package else outermost.__file__ or ".").resolve().parent
        folders = [Path(folder).resolve() for folder in sys.path]
        return cls(module, root_dir, tuple(folder for folder in folders if folder.is_dir() and not _is_library(folder)))

    @property
    def outermost(self) -> str:
        """Name of the plugin's outermost package, or of its module."""
        return self.module.partition(".")[0]

    def owns(self, module: str, path: Path) -> bool:
        """Return whether an imported module is the user's: part of the plugin, or a file below the same directory."""
        outermost = module.partition(".")[0]
        is_beside = path.is_relative_to(self.root_dir) and not _is_library(path)
        return path.is_file() and outermost != "equiflock" and (outermost == self.outermost or is_beside)

    def get_relative_path(self, path: Path) -> str:
        """Return a file's path relative to the first import directory that contains it, the same on every machine."""
        root = next(
            (folder for folder in (self.root_dir, *self.search_dirs) if path.is_relative_to(folder)), path.parent
        )
        return path.relative_to(root).as_posix()

    def find_imported_modules(self) -> dict[str, Path]:
        """Return the files of the plugin and of the user's modules that its import statements reach, by module name."""
        files: dict[str, Path] = {}
        waiting = list(_iter_parent_packages(self.module))
        while waiting:
            module = waiting.pop()
            path = None if module in files else self._find_file(module)
            if path is not None:
                files[module] = path
                waiting += _iter_imports(path, module)
        return files

    def _find_file(self, module: str) -> Path | None:
        """Return the file of a user's module by Python's import rules, or None if it is not the user's."""
        for folder in self._list_search_dirs(module.partition(".")[0]):
            base = folder.joinpath(*module.split("."))
            for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
                if path.is_file():
                    return path.resolve()
        return None

    def _list_search_dirs(self, outermost: str) -> Sequence[Path]:
        """Return the directories to search for a module, by its outermost package; none for equiflock."""
        if outermost == "equiflock":
            return ()
        if outermost == self.outermost:
            return (self.root_dir,)
        return self.search_dirs if _is_library(self.root_dir) else (self.root_dir, *self.search_dirs)


def _iter_imports(path: Path, module: str) -> Iterator[str]:
    """Yield the modules of all import statements of a file, with parent packages; none if it has a syntax error."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # Python reports the error if the file is imported
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _iter_parent_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            # Leading dots count packages upwards from the file's package.
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join(filter(None, [*parents, node.module]))
            yield from _iter_parent_packages(origin)
            yield from (f"{origin}.{alias.name}" for alias in node.names)  # these may be modules


def _iter_parent_packages(module: str) -> Iterator[str]:
    """Yield `a`, `a.b` and `a.b.c` for `a.b.c`."""
    parts = module.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def _is_library(path: Path) -> bool:
    """Return whether a path belongs to Python or an installed package; their versions are recorded instead."""
    paths = sysconfig.get_paths()
    library_dirs = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    return any(path.is_relative_to(folder) for folder in library_dirs) or bool(
        {"site-packages", "dist-packages"} & set(path.parts)
    )
