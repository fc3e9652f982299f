"""One forward pass of the whole model, as compiled code: no Python between its phases."""

from typing import Any

from daemon.engine.fast_arrays import (
    DOWN,
    FIRST_WANTED,
    GATE_UP,
    MATRICES_PER_LAYER,
    OUT,
    QKV,
    ROWS,
    WANTED,
)
from daemon.engine.fast_attention import team_attend, team_place
from daemon.engine.fast_jit import compiled
from daemon.engine.fast_kernels import team_embed, team_gate, team_logits, team_normalize, team_project
from daemon.engine.fast_team import meet, wait_for_work, wake_helpers


@compiled
def attention_block(engine: Any, member: Any, layer: Any) -> None:
    """`hidden += out(attention(norm(hidden)))`."""
    control, scratch, rows = engine.control, engine.scratch, engine.job.counts[ROWS]
    first = layer * MATRICES_PER_LAYER
    team_normalize(engine, 2 * layer, 0, rows)
    meet(control)
    team_project(engine, member, first + QKV, scratch.normed, rows, scratch.qkv, False)
    meet(control)
    team_place(engine, layer)
    meet(control)
    team_attend(engine, member, layer)
    meet(control)
    team_project(engine, member, first + OUT, scratch.mixed, rows, scratch.hidden, True)
    meet(control)


@compiled
def mlp_block(engine: Any, member: Any, layer: Any) -> None:
    """`hidden += down(silu(gate(norm(hidden))) * up(norm(hidden)))`."""
    control, scratch, rows = engine.control, engine.scratch, engine.job.counts[ROWS]
    first = layer * MATRICES_PER_LAYER
    team_normalize(engine, 2 * layer + 1, 0, rows)
    meet(control)
    team_gate(engine, member, first + GATE_UP, rows)
    meet(control)
    team_project(engine, member, first + DOWN, scratch.gated, rows, scratch.hidden, True)
    meet(control)


@compiled
def step(engine: Any, member: Any) -> None:
    """Compute the job as one member of the team; over when all members are through."""
    control, job, layers = engine.control, engine.job, engine.shape.layers
    team_embed(engine, layers * MATRICES_PER_LAYER)
    meet(control)
    for layer in range(layers):
        attention_block(engine, member, layer)
        mlp_block(engine, member, layer)
    if job.counts[WANTED] > 0:
        team_normalize(engine, 2 * layers, job.counts[FIRST_WANTED], job.counts[WANTED])
        meet(control)
        team_logits(engine, member, layers * MATRICES_PER_LAYER + 1)
        meet(control)


def run(engine: Any, member: Any) -> None:
    """The entry. As member 0: compute the job that was prepared, with the helpers. As a helper: serve until the end."""
    if member > 0:
        while wait_for_work(engine.control, member):
            step(engine, member)
    elif engine.job.counts[ROWS] > 0:
        wake_helpers(engine.control)
        step(engine, member)
