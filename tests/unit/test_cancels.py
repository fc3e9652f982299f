"""The table of cancels: who may cancel what, and its bounds."""

import pytest

from daemon.cancels import CancelTable, may_cancel


@pytest.mark.parametrize(
    ("canceller", "owner", "hit"),
    [
        ("alice", "alice", True),
        ("mallory", "alice", False),
        (None, "alice", False),
        ("alice", None, True),
        (None, None, True),
    ],
)
def test_a_request_with_a_user_is_cancelled_only_by_that_user(
    canceller: str | None,
    owner: str | None,
    hit: bool,  # noqa: FBT001
) -> None:
    """Keyed by the id alone, anyone could cancel anyone; running and queued requests follow the same rule."""
    table = CancelTable()
    table.add(canceller, "id")
    assert table.hits(owner, "id") is hit
    assert may_cancel(canceller, owner) is hit


def test_unknown_and_absent_ids_are_not_hit() -> None:
    """A request without any id can never be named by a cancel."""
    table = CancelTable()
    table.add(None, "id")
    assert not table.hits(None, "other")
    assert not table.hits(None, None)


def test_the_table_is_bounded_by_count_the_oldest_gives_way() -> None:
    """Anybody may publish cancels of unknown ids without end."""
    table = CancelTable(most=100)
    for number in range(1000):
        table.add("u", str(number))
    assert len(table) == 100
    assert not table.hits("u", "0")
    assert table.hits("u", "999")
    assert not table.hits(None, "0")


def test_cancels_are_forgotten_after_their_time() -> None:
    """An id that is used again next week must not be refused."""
    table = CancelTable(seconds=-1.0)
    table.add("u", "id")
    assert not table.hits("u", "id")
    assert len(table) == 0
