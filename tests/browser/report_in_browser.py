"""The HTML reports in a real browser: `make report-test`, which needs Chromium and is no part of `make test`.

A copy of each page without its content policy gets a script that measures what the browser made of it. So a plot
without size, a label that is cut off, or a page wider than the window fails here; `make test` checks the structure.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from daemon.evaluation.comparison import compare_runs
from daemon.evaluation.page import comparison_page, report_page
from daemon.evaluation.report import make_report
from daemon.evaluation.results import read_results

BASELINE = Path(__file__).parents[2] / "deploy" / "examples" / "tickets" / "baseline"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1100,1400",
]
PROBE = """
const box = (e) => { const b = e.getBoundingClientRect(); return {w: b.width, h: b.height}; };
const cut = (svg) => [...svg.querySelectorAll("text")].filter((t) => {
  const inner = t.getBoundingClientRect(), outer = svg.getBoundingClientRect();
  return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
    || inner.bottom > outer.bottom + 1;
}).map((t) => t.textContent);
const found = {
  plots: [...document.querySelectorAll("svg")].map((s) => ({...box(s), name: s.ariaLabel, cut: cut(s)})),
  marks: document.querySelectorAll("svg .bar, svg .dot").length,
  tables: [...document.querySelectorAll("table")].map(box),
  squeezed: [...document.querySelectorAll("tbody th")].filter((h) => box(h).w < 45).map((h) => h.textContent),
  titles: [...document.querySelectorAll("h2")].map((h) => h.textContent),
  fits: document.documentElement.scrollWidth <= innerWidth,
  requests: performance.getEntriesByType("resource").length,
};
document.documentElement.setAttribute("data-found", JSON.stringify(found));
"""


def _chromium(directory: Path, *arguments: str) -> str:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program is not None, "make report-test needs Chromium; on Debian: apt install chromium"
    command = [program, *FLAGS, f"--user-data-dir={directory / 'profile'}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def _measured(page: str, directory: Path) -> dict[str, Any]:
    """What the browser made of the page."""
    open_page = re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</body>", f"<script>{PROBE}</script></body>")
    path = directory / "open.html"
    path.write_text(open_page, "utf-8")
    dom = _chromium(directory, "--dump-dom", path.as_uri())
    found = re.search(r'data-found="([^"]*)"', dom)
    assert found is not None, dom[:500]
    measured: dict[str, Any] = json.loads(found[1].replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&"))
    return measured


def _pages() -> dict[str, str]:
    """The pages that the baseline's results make."""
    results = {path.stem: read_results(path) for path in sorted(BASELINE.glob("*.jsonl"))}
    pages = {}
    for name, content in results.items():
        assert content.last_run is not None
        pages[name] = report_page(make_report(content.last_run, content.outcomes(content.last_run.settings)))
    return pages | {"comparison": comparison_page(compare_runs(results["plain"], results["examples"]))}


PAGES = _pages()
_FIELDS = (3, ["Overview", "Fields", "Speed"])
PARTS = {
    "fields": _FIELDS,
    "fields-examples": _FIELDS,
    "fields-no-schema": _FIELDS,
    "plain": (5, ["Overview", "Labels", "Confusion", "Calibration", "Answer only above a probability", "Speed"]),
    "comparison": (2, ["What differs", "Side by side", "Case by case"]),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_part_is_drawn(name: str, tmp_path: Path) -> None:
    """Guards against plots without size, texts cut off, a page too wide, and anything that is asked of the network."""
    found = _measured(PAGES[name], tmp_path)
    assert all(plot["w"] > 200 and plot["h"] > 20 for plot in found["plots"]), found["plots"]
    assert [plot for plot in found["plots"] if plot["cut"]] == []
    assert all(table["w"] > 200 and table["h"] > 20 for table in found["tables"])
    assert (found["fits"], found["requests"]) == (True, 0)
    assert found["squeezed"] == []
    assert found["marks"] > 2
    plots, titles = PARTS.get(name, PARTS["plain"])
    assert len(found["plots"]) == plots
    assert [title for title in titles if title not in found["titles"]] == []


@pytest.mark.parametrize("name", PAGES)
def test_it_prints(name: str, tmp_path: Path) -> None:
    """Guards against a page that cannot be printed, with its own content policy in force."""
    page, pdf, picture = (tmp_path / f"{name}.{kind}" for kind in ("html", "pdf", "png"))
    page.write_text(PAGES[name], "utf-8")
    _chromium(tmp_path, f"--print-to-pdf={pdf}", "--no-pdf-header-footer", page.as_uri())
    _chromium(tmp_path, f"--screenshot={picture}", page.as_uri())
    assert pdf.read_bytes().startswith(b"%PDF-")
    assert picture.read_bytes().startswith(b"\x89PNG")
