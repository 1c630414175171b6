"""The pieces of the guide print what it says, one after the other as in a notebook."""

import contextlib
import io
import pathlib
import re

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs/src/guide/disk-python.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    blocks = BLOCK.findall(GUIDE.read_text())
    names, said, checked = {}, "", 0
    for number, (language, text) in enumerate(blocks):
        if language == "python":
            assert not said, f"the guide does not say that a piece prints\n{said}"
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, f"{GUIDE.name}, piece {number}", "exec"), names)
            said = out.getvalue()
        else:
            assert said == text
            said, checked = "", checked + 1
    assert checked >= 6 and not said
    assert {file.name for file in tmp_path.iterdir()} == {"targets.svg", "figure5.svg"}, "matplotlib is here, so it draws"
