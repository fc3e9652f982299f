"""How the fast engine's code is compiled: by numba, without the interpreter's lock, cached on disk where that works."""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.extending import intrinsic

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])
P = ParamSpec("P")
R = TypeVar("R")

_COMPILED = ("attention", "jit", "kernels", "memory", "records", "step", "team", "vector")
"""The parts of the fast engine that machine code is made of."""


def compiled(function: F) -> F:
    """Compile a function that other compiled functions call; rounding is exactly as written.

    LLVM may not reorder sums: how it does depends on where the code stands, so the process that compiles it and those
    that load it from the cache would not get the same bits.
    """
    return cast("F", _njit(function))


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of compiled code that is given as LLVM IR: numba's `intrinsic`, without its first argument."""
    return cast("Callable[..., Any]", intrinsic(function))


def _njit(function: Callable[..., Any], *, cache: bool = False) -> Any:  # noqa: ANN401
    return numba.njit(nogil=True, boundscheck=False, error_model="numpy", cache=cache)(function)


def compile_entry(function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> Callable[P, R]:
    """Compile the outermost function by calling it once with `arguments`, and return what to call from then on.

    The machine code is kept in the first of `cache_dirs` that can be written to, under a name that changes with the
    sources and with numba; numba itself tells CPUs apart. Where all of them can only be read, as in an image with a
    read-only tree, what they hold is used; where there is none it is compiled at every start.
    """
    started = time.perf_counter()
    place = next((path for path in cache_dirs() if _writable(path)), None)
    with ExitStack() as stack:
        folder = place or _readable_copy(stack)
        entry = _dispatcher(function, folder)
        try:
            entry(*arguments, **named)
        except OSError as error:  # the folder was there, but keeping the code failed: a full disk
            log.warning("compiled code cannot be kept in %s: %s", folder, error)
            place, entry = None, _dispatcher(function, None)
            entry(*arguments, **named)
    verb = "loaded" if sum(entry.stats.cache_hits.values()) else "compiled"
    kept = f"kept in {place}" if place else "no folder to keep it in"
    log.info("fast engine %s in %.1f s (%s)", verb, time.perf_counter() - started, kept)
    ready: Callable[P, R] = entry
    return ready


def _readable_copy(stack: ExitStack) -> Path | None:
    """A temporary copy of the first folder that is there: numba must be able to write even where it only reads."""
    source = next((path for path in cache_dirs() if path.is_dir()), None)
    if source is None:
        return None
    try:
        copy = stack.enter_context(tempfile.TemporaryDirectory(prefix="leveret-jit-"))
        shutil.copytree(source, copy, dirs_exist_ok=True)
    except OSError as error:
        log.warning("compiled code in %s cannot be used without a temporary folder: %s", source, error)
        return None
    return Path(copy)


def cache_dirs() -> list[Path]:
    """Folders for compiled code, best first: the configured one, systemd's, the user's.

    Never the model's: numba unpickles what it finds, and a model comes from elsewhere.
    """
    chosen = [os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("CACHE_DIRECTORY", "").split(":")[0]]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a user may have no home
    name = f"leveret-jit-{_sources_digest()}"
    return [Path(place) / name for place in [*chosen, str(Path(home) / "leveret")] if place]


def _writable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


def _dispatcher(function: Callable[..., Any], place: Path | None) -> Any:  # noqa: ANN401 - numba has no types
    """Numba decides where to keep code when a function is marked, by a global setting."""
    if place is None:
        return _njit(function)
    config: Any = numba.config  # its attributes are made at run time
    configured, config.CACHE_DIR = config.CACHE_DIR, str(place)
    try:
        return _njit(function, cache=True)
    finally:
        config.CACHE_DIR = configured


def _sources_digest() -> str:
    """Numba looks only at the file of the outermost function; this looks at all that it is made of."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for name in _COMPILED:
        digest.update(Path(__file__).with_name(f"fast_{name}.py").read_bytes())
    return digest.hexdigest()[:16]
