"""Dashboard and alerts ask for what `/metrics` really exposes, and tell what really is logged."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from private_broker import PrivateBroker

from daemon.settings import Settings
from tests.support.in_process import running_app
from tests.support.metrics import Scrape, scrape
from tests.support.scripted_model import write_scripted_model

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "leveret.json"
PROMETHEUS_OWN = {"instance", "job", "le"}
"""Labels that Prometheus or a histogram brings."""

_METRIC = re.compile(r"\b((?:leveret|process)_\w+)\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|=)\s*"([^"]*)"')
_COMMAND = re.compile(r"leveret |rabbitmq-|pip |GET |--")
_GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Where each query stands, and the query."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


@pytest.fixture
async def exposed(broker: PrivateBroker, queue: str, tmp_path: Path) -> AsyncIterator[Scrape]:
    """What a daemon that nobody has asked yet exposes."""
    model = write_scripted_model(tmp_path / "model", ["one"])
    async with running_app(model, amqp_url=broker.url, queue=queue) as app:
        seen = await scrape(app.health_port)
        while ("leveret_queue_messages", frozenset({("queue", "parked")})) not in seen.samples:
            seen = await scrape(app.health_port)
        yield seen


async def test_every_query_finds_series(exposed: Scrape) -> None:
    """A panel on a metric that was renamed stays empty, and an alert on it never fires: nobody notices either."""
    labels = [dict(pairs) for _, pairs in exposed.samples]
    known = PROMETHEUS_OWN | {name for pairs in labels for name in pairs}
    asked = list(queries())
    assert len(asked) > len(alerts()) + 20
    for where, query in asked:
        selectors = _METRIC.findall(query)
        assert selectors or "up{" in query, where
        for metric, matchers in selectors:
            assert any(matches(series, metric, matchers) for series in exposed.samples), (where, metric, matchers)
        grouped = {name.strip() for names in _GROUPING.findall(query) for name in names.split(",")}
        assert grouped <= known, (where, grouped - known)


def matches(series: tuple[str, frozenset[tuple[str, str]]], metric: str, matchers: str) -> bool:
    """Does Prometheus' selector hit this series? Its own labels and Grafana's variables count as matching."""
    name, labels = series[0], dict(series[1])
    wanted = [found for found in _MATCHER.findall(matchers) if found[0] not in PROMETHEUS_OWN]
    return name == metric and all(
        re.fullmatch(value, labels.get(label, "")) if operator == "=~" else labels.get(label) == value
        for label, operator, value in wanted
    )


async def test_every_alternative_of_a_code_exists(exposed: Scrape) -> None:
    """One wrong name among alternatives would be hidden by the others."""
    for where, query in queries():
        for metric, matchers in _METRIC.findall(query):
            for label, operator, value in _MATCHER.findall(matchers):
                if operator == "=~" and label not in PROMETHEUS_OWN:
                    for one in value.split("|"):
                        assert (metric, frozenset({(label, one)})) in exposed.samples, (where, one)


def test_each_alert_says_what_to_do() -> None:
    """An alert at night needs the next step, not only its name."""
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert len(rule["annotations"]["runbook"]) > 30, rule["alert"]


def test_what_the_runbooks_quote_is_what_the_daemon_says() -> None:
    """Who searches the log for a quoted line must find it."""
    source = "\n".join(path.read_text() for path in (ROOT / "daemon").rglob("*.py"))
    quoted = {text for rule in alerts() for text in re.findall(r'"([^"]+)"', rule["annotations"]["runbook"])}
    assert len(quoted) > 5
    assert {text for text in quoted if text not in source} == set()


def test_the_dashboard_is_one_that_grafana_lays_out() -> None:
    """Panels with the same id or place hide each other."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_the_operators_page_names_what_there_is(exposed: Scrape) -> None:
    """A log line, metric, setting or file that the page invents costs its reader the night."""
    page = (ROOT / "deploy" / "docs" / "operations.md").read_text()
    code = set(re.findall(r"`([^`\n]+)`", page))
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in exposed.samples}
    metrics = {name for name in code if re.fullmatch(r"(leveret|process)_\w+", name)}
    assert len(metrics) > 12
    assert metrics <= families
    settings = {name for text in code for name in re.findall(r"LEVERET_\w+", text)}
    assert settings <= {f"LEVERET_{name.upper().rstrip('_')}" for name in Settings.model_fields}
    source = "\n".join(path.read_text() for path in (ROOT / "daemon").rglob("*.py"))
    said = {text for text in code if " " in text and not _COMMAND.match(text)}
    assert len(said) > 15
    assert {text for text in said if text not in source} == set()
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert [link for link in links if not (ROOT / "deploy" / "docs" / link).exists()] == []
