"""The whole examination, in the order in which things are needed."""

import os
from datetime import UTC, datetime
from pathlib import Path

from daemon.doctor.broker import check_broker
from daemon.doctor.environment import check_variables
from daemon.doctor.findings import Finding, fail
from daemon.doctor.machine import check_clock, check_memory, check_processor, check_threads, clock_is_synchronised
from daemon.doctor.model import check_model
from daemon.engine.threads import effective_threads
from daemon.errors import ConfigurationError
from daemon.settings import Settings, load_settings


async def examine() -> list[Finding]:
    """Look at everything. Without valid settings only at what needs none."""
    variables = check_variables(os.environ, Path(".env"))
    clock = check_clock(datetime.now(UTC), synchronised=clock_is_synchronised())
    try:
        settings = load_settings()
    except ConfigurationError as error:
        wrong = fail("settings", "they cannot be used", str(error))
        return [wrong, *(finding for finding in variables if finding.advice), check_processor(), clock]
    return [*variables, *await check_broker(settings), *_check_machine(settings), clock]


def _check_machine(settings: Settings) -> list[Finding]:
    findings, load = check_model(settings)
    findings += [check_processor(), check_threads(settings.threads, effective_threads())]
    if load is not None:
        findings.append(check_memory(load.parameters, load.kind, settings.prompt_cache_bytes))
    return findings
