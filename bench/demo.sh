#!/bin/sh
# A real job on slow storage, directly and through elbow run: `make demo`. Installs what is missing, by name.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh demo
exec python3 bench/demo.py "$@"
