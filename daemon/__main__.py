"""`python -m daemon` is `leveret run`."""

from daemon.cli.run import run

if __name__ == "__main__":
    run()
