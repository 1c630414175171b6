#!/bin/sh
# The copyright file of the Debian package, in the machine-readable form (DEP 5): ours, and that of every crate that is linked in.
set -eu
cd "$(dirname "$0")/.."
cat <<HEAD
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: elbowroom
Comment: The programs contain crates of others; each with its version and licence is
 listed in sbom.json of the release.

Files: *
Copyright: The Elbowroom developers
License: MIT or Apache-2.0

License: MIT
HEAD
sed 's/^$/./; s/^/ /' LICENSE-MIT
printf '\nLicense: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n'
