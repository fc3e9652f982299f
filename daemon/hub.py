"""Models from the Hugging Face Hub: which files inference needs, and how they get here."""

import glob
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from daemon.fetching import FetchError, Fill, Say
from daemon.models import ModelRecord

_SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja")
_ANSWER_SECONDS = 15.0


def source(name: str, revision: str | None, say: Say) -> tuple[ModelRecord, Fill]:
    """Ask the Hub for the model `name`: its exact revision, and a function that downloads it into a directory.

    Raises FetchError, in one line: the Hub is out of reach, there is no such model or revision, it is gated, or it
    has no safetensors weights.
    """
    with _plain_errors(name, revision):
        api = HfApi(endpoint=constants.ENDPOINT)
        info = api.model_info(name, revision=revision, timeout=_ANSWER_SECONDS, files_metadata=True)
    files = {item.rfilename: item.size for item in info.siblings or [] if _needed(item.rfilename)}
    if info.sha is None or not any(file.endswith(".safetensors") for file in files):
        raise FetchError(f"{name!r} has no safetensors weights on the Hub; choose another model")
    commit = info.sha

    def fill(directory: Path) -> None:
        total = sum(size or 0 for size in files.values())
        say(f"downloading {name} at {commit[:12]}: {len(files)} files, {total / 1e6:.0f} MB")
        with _plain_errors(name, revision):
            _download(name, commit, files, directory)

    return ModelRecord(name, commit, f"{constants.ENDPOINT}/{name}"), fill


def _needed(file: str) -> bool:
    """Files of the top folder that inference reads; `consolidated` weights are a second copy of the same ones."""
    return "/" not in file and file.endswith(_SUFFIXES) and not file.startswith("consolidated")


def _download(name: str, commit: str, files: Mapping[str, int | None], directory: Path) -> None:
    """Download into `directory` the files that are not whole there yet.

    The Hub's client goes on within a file where the line broke, but begins it anew after the end of its process.
    """
    for stale in directory.rglob("*.incomplete"):
        stale.unlink()
    patterns = [glob.escape(file) for file in files]
    snapshot_download(name, revision=commit, local_dir=directory, allow_patterns=patterns)
    # The Hub's client answers with whatever is there where the connection fails at the wrong moment.
    for file, size in files.items():
        path = directory / file
        if not path.is_file() or (size is not None and path.stat().st_size != size):
            raise FetchError(f"{name!r} came incomplete ({file} is missing or short); run the same command again")
    shutil.rmtree(directory / ".cache", ignore_errors=True)


@contextmanager
def _plain_errors(name: str, revision: str | None) -> Iterator[None]:
    """Turn the errors of the Hub's client into one line that says what to do."""
    try:
        yield
    except HFValidationError as error:
        raise FetchError(f"{name!r} is no model id of the Hub; expected something like 'org/model'") from error
    except OfflineModeIsEnabled as error:
        raise FetchError(f"HF_HUB_OFFLINE is set, so {name!r} cannot be fetched; unset it") from error
    except GatedRepoError as error:
        raise FetchError(f"{name!r} is gated: accept its terms on the Hub, then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise FetchError(f"no model {name!r} on the Hub, or it is private: check the name, set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise FetchError(f"model {name!r} has no revision {revision!r} on the Hub") from error
    except HfHubHTTPError as error:
        raise FetchError(f"the Hub answered {error.response.status_code} for {name!r}; try again later") from error
    except (httpx2.HTTPError, LocalEntryNotFoundError, ConnectionError) as error:
        raise FetchError(
            f"the Hub ({constants.ENDPOINT}) is out of reach ({_first_line(error)}); run the same command again to go "
            "on, or use `leveret fetch smollm2-135m`"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
