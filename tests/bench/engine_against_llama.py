"""Decode and prefill against llama.cpp on the same shape and threads, in turns; prints medians of the paired ratios.

    python -m tests.bench.engine_against_llama MODEL_DIR KIND PEER_PYTHON FILE.gguf

MODEL_DIR is a model directory of ours, FILE.gguf the same architecture in llama.cpp's format, PEER_PYTHON a Python with
llama-cpp-python. Both processes stay loaded, and every figure is measured alternately, so that what else the machine
does meets both.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median

from daemon.bench.measure import Measurement
from daemon.engine.load import EngineOptions, load_model
from daemon.engine.threads import effective_threads
from tests.bench.pairs import circumstances, peer, told

TURNS = 7
DECODED = 16
CASES = (f"decode 64 {DECODED}", f"decode 1000 {DECODED}", "prefill 128", "prefill 1000")


def peer_seconds(process: "subprocess.Popen[str]", case: str) -> float:
    """One measurement of llama.cpp."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(case + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def own_seconds(run: Measurement, case: str) -> float:
    """The same measurement of our engine."""
    kind, context, *count = case.split()
    if kind == "prefill":
        return int(context) / run.prefill(int(context))
    assert int(count[0]) == DECODED
    return 1 / run.decode(int(context))


def main() -> None:
    """Measure all cases and print a line for each."""
    directory, kind, python, gguf = sys.argv[1:]
    threads = effective_threads(None)
    run = Measurement(load_model(EngineOptions(Path(directory), kind, threads, 2048, 0)))
    print(f"{Path(directory).name} in {kind} against {Path(gguf).name}, {threads} threads, {TURNS} turns")
    own_speed = {}
    with peer(python, "llama_engine.py", gguf, str(threads)) as process:
        for case in CASES:
            pairs = [(own_seconds(run, case), peer_seconds(process, case)) for _ in range(TURNS)]
            own_speed[case] = median(own for own, _ in pairs)
            print(told(case, pairs), flush=True)
    print(f"speed behind 1000 tokens to that behind 64: {own_speed[CASES[0]] / own_speed[CASES[1]]:.2f}")
    print(circumstances())


if __name__ == "__main__":
    main()
