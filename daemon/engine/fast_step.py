"""One forward pass of the whole model as a row of phases, in compiled code: no Python between them."""

from typing import Any

from daemon.engine.fast_attention import attend_task, place_task, tiles_of
from daemon.engine.fast_config import LANES
from daemon.engine.fast_jit import compiled
from daemon.engine.fast_kernels import (
    embed_task,
    first_needed_row,
    gate_task,
    normalize_task,
    project_task,
    round_row,
)
from daemon.engine.fast_memory import engine_at, matrix_at
from daemon.engine.fast_records import DOWN, GATE_UP, INT4, MATRICES_PER_LAYER, MATRIX, OUT, QKV
from daemon.engine.fast_team import CLOSED, begin, end, finish, leave, take, wait, wait_for_work

_ATTENTION_NORM, _QKV, _PLACE, _ATTEND, _ROUND, _OUT, _MLP_NORM, _GATE, _DOWN = range(9)
_LAYER_PHASES = 9
"""Phases of a layer; the embedding is phase 0, so layer L begins with phase 9 * L + 1."""
_TASKS_PER_MEMBER = 8
"""How many tasks of a matrix phase each member has at least, as far as there are units."""
_TASK_PRODUCTS = 1 << 18
"""Multiply-adds of a task of several units at most: some ten microseconds."""
_MATRIX_BYTES = MATRIX.itemsize


@compiled
def matrix_of(e: Any, number: Any) -> Any:
    """A matrix by its number."""
    return matrix_at(e.matrices + _MATRIX_BYTES * number)


@compiled
def phase_count(e: Any) -> Any:
    """Phases of the step; without wanted logits it ends where the last layer's keys and values have their place."""
    layers = 1 + _LAYER_PHASES * e.layers
    return layers + 2 if e.wanted > 0 else layers - (_LAYER_PHASES - _ATTEND)


@compiled
def phase_after(e: Any, phase: Any) -> Any:
    """The next phase, `phase_count` or more at the end; what attention gives is rounded only for an int4 matrix."""
    layer, kind = phase // _LAYER_PHASES, phase % _LAYER_PHASES
    skipped = layer < e.layers and kind == _ROUND and matrix_of(e, phase_matrix(e, layer, kind)).kind != INT4
    return phase + 2 if skipped else phase + 1


@compiled
def phase_matrix(e: Any, layer: Any, kind: Any) -> Any:
    """The matrix that a phase multiplies with, or prepares the input of, by its number."""
    if layer == e.layers:
        return layer * MATRICES_PER_LAYER + 1
    if kind <= _QKV:
        return layer * MATRICES_PER_LAYER + QKV
    if kind <= _OUT:
        return layer * MATRICES_PER_LAYER + OUT
    return layer * MATRICES_PER_LAYER + (GATE_UP if kind <= _GATE else DOWN)


@compiled
def units_of(e: Any, layer: Any, kind: Any) -> Any:
    """What a matrix phase consists of: blocks of 16 rows, or pairs of them for gate and up."""
    blocks = matrix_of(e, phase_matrix(e, layer, kind)).blocks
    return blocks // 2 if layer < e.layers and kind == _GATE else blocks


@compiled
def first_row_of(e: Any, layer: Any, kind: Any) -> Any:
    """The first row that a layer's phase is about."""
    return first_needed_row(e, layer) if kind >= _ATTEND else 0


@compiled
def units_at_once(e: Any, layer: Any, kind: Any) -> Any:
    """How many units make a task: so many that taking it costs nothing, so few that all members end together."""
    matrix, units = matrix_of(e, phase_matrix(e, layer, kind)), units_of(e, layer, kind)
    rows = e.wanted if layer == e.layers else e.rows - first_row_of(e, layer, kind)
    products = matrix.blocks // units * LANES * matrix.columns * rows
    return max(min(units // (_TASKS_PER_MEMBER * e.members), _TASK_PRODUCTS // products), 1)


@compiled
def is_norm(kind: Any) -> Any:
    """Whether a layer's phase is one of its two norms."""
    return kind == _ATTENTION_NORM or kind == _MLP_NORM  # noqa: PLR1714 - a set would have to be compiled


@compiled
def is_row_by_row(kind: Any) -> Any:
    """Whether a layer's phase has a task for each row."""
    return is_norm(kind) or kind == _PLACE or kind == _ROUND  # noqa: PLR1714 - as above


@compiled
def task_count(e: Any, phase: Any) -> Any:
    """Tasks of a phase."""
    if phase == 0:
        return e.rows
    layer, kind = (phase - 1) // _LAYER_PHASES, (phase - 1) % _LAYER_PHASES
    if layer == e.layers and kind == 0:
        return e.wanted
    if kind == _ATTEND:
        return e.segment_count * e.kv_heads * tiles_of(e, e.longest_segment)
    if layer < e.layers and is_row_by_row(kind):
        return e.rows - first_row_of(e, layer, kind)
    units, at_once = units_of(e, layer, kind), units_at_once(e, layer, kind)
    return (units + at_once - 1) // at_once


@compiled
def matrix_unit(e: Any, member: Any, layer: Any, kind: Any, unit: Any) -> None:
    """One unit of a matrix phase."""
    matrix, first = matrix_of(e, phase_matrix(e, layer, kind)), first_row_of(e, layer, kind)
    if layer == e.layers:
        project_task(e, member, matrix, unit, e.normed, 0, e.wanted, e.logits, e.vocab_size, False)
    elif kind == _QKV:
        width = (e.heads + 2 * e.kv_heads) * e.head_dim
        project_task(e, member, matrix, unit, e.normed, first, e.rows, e.qkv, width, False)
    elif kind == _OUT:
        project_task(e, member, matrix, unit, e.mixed, first, e.rows, e.states, e.hidden, True)
    elif kind == _GATE:
        gate_task(e, member, matrix, unit, first)
    else:
        project_task(e, member, matrix, unit, e.gated, first, e.rows, e.states, e.hidden, True)


@compiled
def run_task(e: Any, member: Any, phase: Any, task: Any) -> None:
    """One task of a phase."""
    layer, kind = (phase - 1) // _LAYER_PHASES, (phase - 1) % _LAYER_PHASES
    if phase == 0:
        embed_task(e, matrix_of(e, e.layers * MATRICES_PER_LAYER), task)
    elif layer == e.layers and kind == 0:
        normalize_task(e, 2 * layer, e.first_wanted + task, task, matrix_of(e, phase_matrix(e, layer, kind)))
    elif layer < e.layers and kind == _PLACE:
        place_task(e, layer, task)
    elif layer < e.layers and kind == _ATTEND:
        attend_task(e, member, layer, task)
    elif layer < e.layers and is_norm(kind):
        matrix, row = matrix_of(e, phase_matrix(e, layer, kind)), first_row_of(e, layer, kind) + task
        normalize_task(e, 2 * layer + (kind == _MLP_NORM), row, row, matrix)
    elif layer < e.layers and kind == _ROUND:
        row = first_row_of(e, layer, kind) + task
        round_row(e, e.mixed, row, matrix_of(e, phase_matrix(e, layer, kind)))
    else:
        units, at_once = units_of(e, layer, kind), units_at_once(e, layer, kind)
        for unit in range(task * at_once, min((task + 1) * at_once, units)):
            matrix_unit(e, member, layer, kind, unit)


@compiled
def compute(e: Any, member: Any) -> None:
    """Work on the step until it is over. Once it is closed, nothing of it may be looked at."""
    while True:
        phase, task = take(e.control)
        if phase == CLOSED:
            return
        tasks = task_count(e, phase)
        if task < tasks:
            run_task(e, member, phase, task)
            following = phase_after(e, phase)
            finish(e.control, tasks, following if following < phase_count(e) else CLOSED)
        else:
            wait(e.control, phase)


def run(address: int, member: int) -> None:
    """The entry, given the address of an ENGINE record. Member 0 computes the step that was prepared there.

    Other members are helpers: they serve until the team is dissolved. Without rows nothing is computed.
    """
    e = engine_at(address)
    if member > 0:
        while wait_for_work(e.control, member):
            compute(e, member)
            leave(e.control)
    elif e.rows > 0:
        begin(e.control, e.members)
        compute(e, member)
        end(e.control)
