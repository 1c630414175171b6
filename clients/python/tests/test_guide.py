"""The commands and programs of the guide do what it says."""

import os
import pathlib
import re
import subprocess

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs/src/guide/lock-python.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guide(directory):
    programs = blocks("python")
    assert programs, "the guide has no program"
    for program in programs:
        name = re.match(r"# (\w+\.py)\b", program)
        assert name, f"a program of the guide does not begin with its name:\n{program}"
        (directory / name[1]).write_text(program)
    # `check.py` has run pip, against a build that takes less time.
    commands = "".join(re.sub(r"^pip install .*\n", "", block, flags=re.MULTILINE) for block in blocks("sh"))
    assert all(f"python {name.name}" in commands for name in directory.glob("*.py")), "the guide runs not all of its programs"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
    environment.pop("ELBOW_LOCKS", None)
    script = f"set -e\ntrap 'kill $(jobs -p)' EXIT\n{commands}"
    run = subprocess.run(
        ["bash", "-c", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    print(run.stdout, run.stderr)
    assert run.returncode == 0
    expected = [line for block in blocks("text") for line in block.splitlines()]
    assert expected
    assert [line for line in run.stdout.splitlines() if line in expected] == expected
