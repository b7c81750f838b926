"""Every documented outline of ``--json`` is that of the document that the verb prints."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from rankscope_cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
VERB = re.compile(r"rankscope (.* --json) 2>/dev/null \| python shape\.py")
FILE = re.compile(r"python shape\.py < (\S+)")


@pytest.mark.slow
def test_documents_have_the_documented_shapes(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All in this process; `make docs` gives each command one of its own."""
    page = DOCS / "reference" / "schemas.md"
    show = runpy.run_path(str(DOCS / "data" / "shape.py"))["show"]
    monkeypatch.chdir(tmp_path)
    for step in runner.read_steps(page, page.read_text(encoding="utf-8")):
        for name in step.files:
            shutil.copy(DOCS / "data" / name, tmp_path)
        if step.language == "python":
            exec(step.text, {"__name__": "__main__"})
            continue
        if verb := VERB.fullmatch(step.text):
            result = CliRunner().invoke(app, shlex.split(verb[1]), prog_name="rankscope")
            assert result.exit_code == 0, f"{step.place}: {result.stderr}"
            document = json.loads(result.stdout)
        else:
            file = FILE.fullmatch(step.text)
            assert file is not None, f"{step.place}: {step.text}"
            document = json.loads(Path(file[1]).read_text(encoding="utf-8"))
        capsys.readouterr()
        show(document)
        assert runner.matches(step.shown, capsys.readouterr().out, step.share), step.place
