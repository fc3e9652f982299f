"""`make image-test`: builds the image with the small model for real, runs it locked down, and looks whether it holds.

With Docker where an engine answers, else with buildah and crun, as root, on a base image that is made here.
"""

import sys

import buildah_engine
import docker_engine
from checks import check_container, check_image
from container import ImageTestFailed
from private_broker import BrokerError


def build_and_run() -> int:
    """Build, then run; returns the exit status."""
    if docker_engine.available():
        docker_engine.build()
        check_image(image := docker_engine.inspect())
        with docker_engine.running() as container:
            check_container(container, image)
        return 0
    buildah_engine.build()
    check_image(buildah_engine.inspect())
    return buildah_engine.in_empty_network(__file__)


def run_built() -> int:
    """What happens in the empty network: the built image is run."""
    image = buildah_engine.inspect()
    with buildah_engine.running() as container:
        check_container(container, image)
    return 0


def main() -> int:
    """Returns the exit status."""
    try:
        return run_built() if "--built" in sys.argv[1:] else build_and_run()
    except (ImageTestFailed, BrokerError) as error:
        print(f"image-test: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
