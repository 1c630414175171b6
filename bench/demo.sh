#!/bin/sh
# A real job on slow storage, directly and through elbow run: `make demo`. Installs what is missing, by name.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh demo
programs=${CARGO_TARGET_DIR:-target}/release
"${CARGO:-cargo}" build --release --locked -p elbow -p elbow-testkit
exec python3 bench/demo.py --elbow "$programs/elbow" --programs "$programs" "$@"
