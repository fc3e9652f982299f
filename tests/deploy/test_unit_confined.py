"""The unit's command in namespaces of its own: unprivileged, on a read-only tree, with no network but the broker."""

import json
import subprocess
from pathlib import Path

from tests.support.confined import NOBODY, ROOT, in_namespaces


def test_it_serves_as_nobody_on_a_read_only_tree_and_reaches_for_nothing_else(smollm2_dir: Path) -> None:
    """A library that phones home, or needs a folder of its own to write to, would break it where it is locked up."""
    command = in_namespaces(smollm2_dir.name)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "Paris" in seen["answer"], done.stderr
    assert seen["live"] == 200
    assert set(seen["status"]["Uid"]) == {NOBODY}
    assert seen["status"]["CapEff"] == ["0000000000000000"]
    assert seen["writable"] == ["/var/cache"]
    assert seen["attempts"] == 0
    assert seen["attempts_of_others"] > 0
    assert seen["exit"] == 0
