"""Where compiled code is kept, and that code which can only be read is used."""

from pathlib import Path
from typing import Any

import pytest

from daemon.engine import fast_jit


def total(number: int) -> int:
    """Something to compile."""
    return sum(range(number))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders for compiled code: none but the test's own."""
    places = [tmp_path / "image", tmp_path / "home"]
    monkeypatch.setattr(fast_jit, "cache_dirs", lambda: places)
    return places


def hits(entry: Any) -> int:
    """How often code was loaded instead of compiled."""
    return sum(entry.stats.cache_hits.values())


def test_code_that_an_image_brings_is_used_on_a_read_only_tree(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba refuses a folder that it cannot write to, so every start of a locked-down container compiled anew."""
    assert hits(fast_jit.compile_entry(total, 3)) == 0
    before = sorted(folders[0].rglob("*"))
    monkeypatch.setattr(fast_jit, "_writable", lambda _: False)
    entry = fast_jit.compile_entry(total, 3)
    assert hits(entry) == 1
    assert entry(4) == 6
    assert sorted(folders[0].rglob("*")) == before


def test_without_any_folder_it_is_compiled(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree without a home and without compiled code is slower to start, no error."""
    monkeypatch.setattr(fast_jit, "_writable", lambda _: False)
    entry = fast_jit.compile_entry(total, 3)
    assert hits(entry) == 0
    assert entry(4) == 6


def test_without_a_temporary_folder_it_is_compiled(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A read-only tree without a /tmp cannot use what is there, and says so; it starts all the same."""
    fast_jit.compile_entry(total, 3)
    monkeypatch.setattr(fast_jit, "_writable", lambda _: False)
    monkeypatch.setattr(fast_jit.tempfile, "tempdir", str(tmp_path / "missing"))
    entry = fast_jit.compile_entry(total, 3)
    assert hits(entry) == 0
    assert entry(4) == 6
