"""What a check finds: a verdict, what was seen, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`warn`: a daemon works, but not as well as it could; `fail`: it does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report. `advice` is empty where there is nothing to do."""

    check: str
    verdict: Verdict
    seen: str
    advice: str = ""


def ok(check: str, seen: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, seen)


def warn(check: str, seen: str, advice: str) -> Finding:
    """It works; `advice` says how it works better."""
    return Finding(check, Verdict.WARN, seen, advice)


def fail(check: str, seen: str, advice: str) -> Finding:
    """It does not work until `advice` is followed."""
    return Finding(check, Verdict.FAIL, seen, advice)
