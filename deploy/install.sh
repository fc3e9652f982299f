#!/bin/sh
# Makes .venv from the lock, with torch's CPU build, and installs the project into it in editable form.
# PYTHON names the interpreter (3.11 or newer), TORCH_INDEX another index for torch.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "make install: $python is not Python 3.11 or newer; set PYTHON to one that is" >&2
    exit 1
}
# Debian keeps what a virtual environment needs in a package of its own.
if ! "$python" -c 'import ensurepip' 2>/dev/null && command -v apt-get >/dev/null; then
    echo "== python3-venv, with apt" >&2
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo"
    { $as_root apt-get update && $as_root apt-get install --yes --no-install-recommends python3-venv; } >&2 || true
fi
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear .venv || {
        echo "make install: $python makes no virtual environment; on Debian: apt install python3-venv" >&2
        exit 1
    }
fi
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

echo "== Libraries of requirements.lock" >&2
pip install --no-deps --no-compile --require-hashes -r requirements.lock

# torch stands outside the lock: which file fits depends on the index that is reached. The CPU build is asked for by
# name, for a plain `torch` brings several GB of CUDA. The other libraries never pull it: they are installed without
# their needs, and torch's own needs are in the lock.
echo "== torch, CPU build" >&2
case "$(uname -s)" in
Linux) torch="torch==2.13.0+cpu" ;;
*) torch="torch==2.13.0" ;;
esac
pip install --no-deps --no-compile --retries 0 --timeout 20 \
    --extra-index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "$torch"

echo "== Leveret" >&2
pip install --no-deps --no-build-isolation --quiet --editable .
