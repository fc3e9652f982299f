"""llama.cpp, timed: runs in the environment of llama-cpp-python, takes one measurement a line and prints its seconds.

`prefill N`: a prompt of N tokens. `decode N M`: one token behind N others, the mean of M.
"""

import random
import sys
import time

import llama_cpp


def main() -> None:
    """Serve the lines of standard input, with the model file and the number of threads given as arguments."""
    path, threads = sys.argv[1], int(sys.argv[2])
    model = llama_cpp.Llama(
        path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False, logits_all=False
    )
    print("ready", flush=True)
    for line in sys.stdin:
        kind, context, *count = line.split()
        model.reset()
        started = time.perf_counter()
        model.eval([random.randrange(model.n_vocab() // 2) for _ in range(int(context))])  # noqa: S311 - any tokens do
        if kind == "decode":
            started = time.perf_counter()
            for token in range(int(count[0])):
                model.eval([token + 5])
        print((time.perf_counter() - started) / int(count[0] if count else 1), flush=True)


if __name__ == "__main__":
    main()
