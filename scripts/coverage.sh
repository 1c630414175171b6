#!/bin/sh
# How many lines of floors 0 to 2 their own tests run through: `make coverage`.
#
# A table for each crate, the files below the bound, and pages with every line in target/llvm-cov/html. Fails below the bound. What tests consist
# of themselves does not count: files whose name says so, and doubles. Coverage says what was not run, never what was checked.
#
#     scripts/coverage.sh           85 %
#     scripts/coverage.sh 90        another bound
set -eu

bound=${1:-85}
root=$(cd "$(dirname "$0")/.." && pwd)
crates='elbow-ranges elbow-file elbow-job elbow-extmem elbow-lock elbow-disk'
not_counted='(_test|/test_support|/tests/|/double)|/crates/(elbow-testkit|elbow-study|elbow-ext2|elbow-drive|elbow-mount|elbow-remote|elbow)/'

cd "$root"
if [ ! -e "$(rustc --print target-libdir)/../bin/llvm-profdata" ]; then
    # Debian's have the number of LLVM in their names.
    llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    export LLVM_COV="llvm-cov-$llvm" LLVM_PROFDATA="llvm-profdata-$llvm"
fi
packages=
for crate in $crates; do packages="$packages -p $crate"; done
# shellcheck disable=SC2086 # a list of words
cargo llvm-cov --locked --no-report $packages
mkdir -p target/llvm-cov
cargo llvm-cov report --json --summary-only --ignore-filename-regex "$not_counted" --output-path target/llvm-cov/all.json
cargo llvm-cov report --html --ignore-filename-regex "$not_counted" >/dev/null
# shellcheck disable=SC2086
exec python3 - "$bound" "$root" $crates <<'PYTHON'
import json
import sys

bound, root, crates = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
with open("target/llvm-cov/all.json", encoding="utf-8") as file:
    files = json.load(file)["data"][0]["files"]


def lines(of):
    count = sum(file["summary"]["lines"]["count"] for file in of)
    return count, sum(file["summary"]["lines"]["covered"] for file in of), count or 1


print(f"{'crate':14} {'lines':>7} {'run':>7} {'%':>6}")
below = []
for crate in [*crates, "all"]:
    of = [file for file in files if crate == "all" or f"/crates/{crate}/" in file["filename"]]
    count, covered, divisor = lines(of)
    print(f"{crate:14} {count:7} {covered:7} {100 * covered / divisor:6.1f}")
    if crate != "all" and 100 * covered / divisor < bound:
        below.append(crate)
print(f"\nfiles below {bound:g} %:")
for file in sorted(files, key=lambda file: file["summary"]["lines"]["percent"]):
    if file["summary"]["lines"]["percent"] < bound:
        of = file["summary"]["lines"]
        print(f"{of['percent']:6.1f}  {of['count'] - of['covered']:5} lines  {file['filename'].removeprefix(root + '/')}")
sys.exit(f"below {bound:g} %: {', '.join(below)}" if below else 0)
PYTHON
