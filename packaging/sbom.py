#!/usr/bin/env python3
"""Every crate that is in what we give away, as CycloneDX 1.5: from Cargo.lock, by `cargo metadata`; without those of tests and builds."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIVEN = ["elbow", "elbow-mpi", "elbow-fcntl", "elbow-c", "elbow-c-lock", "elbow-python"]


def main():
    words = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host()]
    metadata = json.loads(subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    linked = reached(metadata["resolve"]["nodes"], [id for id, package in packages.items() if package["name"] in GIVEN])
    checksums = {(package["name"], package["version"]): package.get("checksum")
                 for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    components = [component(packages[id], checksums) for id in linked]
    components.sort(key=lambda one: (one["name"], one["version"]))
    version = next(package["version"] for package in packages.values() if package["name"] == "elbow")
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": {"type": "application", "name": "elbowroom", "version": version}}, "components": components}
    json.dump(bill, sys.stdout, indent=1)
    print()


def host():
    said = subprocess.run(["rustc", "--version", "--verbose"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return next(line.split(": ")[1] for line in said.splitlines() if line.startswith("host"))


def reached(nodes, first):
    """The crates that these need when they run."""
    needs = {node["id"]: [dependency["pkg"] for dependency in node["deps"] if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
             for node in nodes}
    found, left = set(), list(first)
    while left:
        crate = left.pop()
        if crate not in found:
            found.add(crate)
            left += needs[crate]
    return found


def component(package, checksums):
    checksum = checksums.get((package["name"], package["version"]))
    return {"type": "library", "name": package["name"], "version": package["version"],
            "purl": f"pkg:cargo/{package['name']}@{package['version']}",
            "licenses": [{"expression": package["license"]}] if package.get("license") else [],
            "hashes": [{"alg": "SHA-256", "content": checksum}] if checksum else []}


if __name__ == "__main__":
    main()
