"""The app as a whole: lazy, legible help, exit codes, interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from rich.markup import render

from rankscope.errors import DataError
from rankscope_cli.app import PANELS, VERBS, help_text, load_verb
from rankscope_cli.exits import report_error, unwind
from rankscope_cli.verbs.lab import EXPERIMENTS

HEAVY = ("torch", "numpy", "pandas", "scipy", "transformers", "chronos", "gluonts", "matplotlib", "datasets", "yaml")
LIBRARY = {  # what each verb calls, where a test makes it fail
    "spectrum": "rankscope.measure.spectrum.measure_spectrum",
    "flow": "rankscope.measure.flow.measure_flow",
    "embed": "rankscope.measure.embedding.measure_embedding",
    "families": "rankscope.families.table.list_families",
    "calibrate": "rankscope.compress.calibration.calibrate",
    "compress": "rankscope.compress.compress",
    "heal": "rankscope.compress.heal.heal",
    "eval": "rankscope_eval.evaluate",
    "bench": "rankscope_eval.bench.run_bench",
    "table2": "rankscope_eval.tradeoff.run_table2",
    "forecast": "rankscope_eval.forecast_file",
    "design": "rankscope.train.recipe.write_design",
    "pretrain": "rankscope.train.pretrain",
    "standin": "rankscope.train.proxies.train_proxy",
    "synth": "rankscope.train.write_shards",
    "sweep": "rankscope.train.sweeps.run_sweep",
    "report": "rankscope_eval.page.build.build_page",
    "figures": "rankscope_paper.figures.draw",
    "theory": "rankscope_paper.theory.run.run_theory",
}
COMMANDS = [verb for verb in VERBS if verb != "lab"]  # test_lab.py has what holds for the group and its sub-verbs
WITHOUT_MODEL = ("families", "standin", "report", "figures", "theory")
RESUMABLE = ("calibrate", "heal", "table2", "eval", "forecast", "pretrain", "synth")
EXTRA = {
    "calibrate": ("--calibration", "kernelsynth:1", "--out", "out.safetensors"),
    "compress": ("--eps", "0.1", "--out", "out"),
    "heal": ("--teacher", "bundled", "--out", "out"),
    "table2": ("--out", "out"),
    "forecast": ("--input", "x.csv", "--horizon", "2", "--out", "out.csv"),
    "design": ("--out", "out"),
    "pretrain": ("bundled", "--out", "out"),
    "standin": ("vit", "--out", "out"),
    "families": (),
    "synth": ("--kind", "structured", "--n", "4", "--out", "out"),
    "sweep": ("width", "--out", "out"),
    "report": ("--out", "out.html"),
    "figures": ("15", "--out", "out"),
    "theory": ("thm2", "--out", "out.csv"),
}


def words(verb: str, model: Path) -> tuple[object, ...]:
    if verb in ("families", "figures", "pretrain", "standin", "synth", "sweep", "theory"):
        return (verb, *EXTRA[verb])
    return (verb, model, *EXTRA.get(verb, ("--out", "out.csv")))


def make_fail(monkeypatch: pytest.MonkeyPatch, verb: str, error: BaseException) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    module, _, name = LIBRARY[verb].rpartition(".")
    monkeypatch.setattr(import_module(module), name, fail)


def loaded_after(*args: str) -> str:
    code = (
        "import sys\n"
        "from rankscope_cli.app import run\n"
        f"code = run({list(args)!r})\n"
        f"print('LOADED', code, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("spectrum", "--help"), ("eval", "-h"), ("sepctrum",)])
def test_nothing_heavy_is_imported_before_a_verb_runs(args: tuple[str, ...]) -> None:
    assert loaded_after(*args) in ("LOADED 0 []", "LOADED 2 []")


@pytest.mark.slow
def test_spectrum_imports_only_what_it_needs(chronos_t5_folder: Path) -> None:
    code = (
        "import sys\n"
        "from rankscope_cli.app import run\n"
        f"assert run(['spectrum', {str(chronos_t5_folder)!r}, '--json']) == 0\n"
        "heavy = ('transformers', 'chronos', 'gluonts', 'pandas', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("verb", [*VERBS, *(f"lab_{name}" for name in EXPERIMENTS)])
def test_help_of_a_verb(cli: Any, verb: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = verb.replace("_", " ")
    result = cli(*command.split(), "--help")
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(map(len, lines)) <= columns
    assert lines[3].strip() == {**VERBS, **{f"lab_{name}": line for name, line in EXPERIMENTS.items()}}[verb]
    assert 2 <= sum(line.startswith(f"   rankscope {command}") for line in lines) <= 4
    assert "[bold]" not in result.stdout
    assert not any(f"<{name}>" in result.stdout for name in ("bool", "str", "int", "float"))


def test_brackets_in_help_are_no_markup(cli: Any) -> None:
    assert "(pip install 'rankscope[fev]')" in " ".join(cli("eval", "--help").stdout.split())
    text = help_text("Do it.\n\n    See [a].\n\n    Examples:\n        pip install 'x[y]'")
    assert render(text).plain == "Do it.\n\nSee [a].\n\nExamples\n\n  pip install 'x[y]'"


def test_help_of_the_app_groups_the_verbs(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("--help").stdout.splitlines()
    shown = [line.strip("│╭╮─ ").split("  ")[0].strip() for line in lines if line[:1] in "│╭"]
    assert [word for word in shown if word in PANELS or word in VERBS] == [
        word for panel, verbs in PANELS.items() for word in (panel, *verbs)
    ]
    assert all(any(summary in line for line in lines) for summary in VERBS.values()), "a summary takes one line"


@pytest.mark.parametrize("verb", RESUMABLE)
def test_going_on_and_starting_anew_exclude_each_other(
    verb: str, refused: Any, bolt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = words(verb, bolt_folder)
    if verb == "forecast":
        Path("series.jsonl").write_text('{"item_id": "a", "target": [1, 2, 3, 4]}\n')
        given = (verb, bolt_folder, "--input", "series.jsonl", "--horizon", "2", "--out", "out/")
    elif verb == "heal":
        given = (verb, bolt_folder, "--teacher", "bundled-bolt", "--out", "out")
    line = "error: --resume and --force are mutually exclusive.\n"
    assert refused(*given, "--resume", "--force") == line
    assert sorted(path.name for path in tmp_path.glob("out*")) == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_the_shared_options(verb: str) -> None:
    options = {name for param in load_verb(verb).params for name in param.opts}
    assert {"--json", "--out", "--force", "--debug"} <= options
    assert ("--resume" in options) == (verb in RESUMABLE)
    if verb in WITHOUT_MODEL:
        return
    assert "--device" in options
    if verb not in ("pretrain", "synth", "sweep"):  # a run's seed and number format are in its config
        assert "--revision" in options
        assert ("--dtype" in options) == (verb not in ("embed", "flow"))  # which compute in float32
        assert ("--seed" in options) == (verb != "spectrum")  # which draws nothing


def test_version(cli: Any) -> None:
    from rankscope import __version__

    assert cli("--version").stdout == f"rankscope {__version__}\n"


def test_no_arguments_print_the_help(cli: Any) -> None:
    result = cli()
    assert result.exit_code == 2
    assert "compress" in result.output


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("specrum",), "'spectrum'"),
        (("spectrum", "--epz", "1"), "--eps"),
        (("compress", "--eps", "0.1"), "--out"),
        (("eval", "--max-series", "0"), "--max-series"),
        (("forecast", "--horizon", "x", "--input", "y"), "--horizon"),
    ],
)
def test_usage_errors_are_one_line(refused: Any, args: tuple[str, ...], part: str) -> None:
    assert part in refused(*args)


def test_a_mistyped_choice_is_answered_with_the_nearest(refused: Any) -> None:
    line = refused("compress", "--method", "jiont", "--ratio", "0.5", "--out", "x")
    assert "'theorem3', 'asvd', 'random': did you mean 'joint'? See 'rankscope compress --help'" in line
    assert "did you mean" not in refused("compress", "--method", "nonsense", "--ratio", "0.5", "--out", "x")


@pytest.mark.parametrize("verb", [*VERBS, *(f"lab_{name}" for name in EXPERIMENTS)])
def test_choices_are_checked_before_anything_runs(refused: Any, verb: str) -> None:
    hints = get_type_hints(import_module(f"rankscope_cli.verbs.{verb}").run, include_extras=True)
    flags = {"part_format": "--format", "cross_depth": "--cross-depth", "on_error": "--on-error"}
    for name in (name for name, hint in hints.items() if "Literal" in str(hint)):
        flag = flags.get(name, f"--{name}")
        line = refused(*verb.split("_"), flag, "nonsense")
        assert f"Invalid value for '{flag}'" in line
        assert ": 'nonsense' is not one of '" in line


@pytest.mark.parametrize("verb", COMMANDS)
def test_bad_input_exits_with_two(refused: Any, monkeypatch: Any, chronos_t5_folder: Path, verb: str) -> None:
    monkeypatch.chdir(chronos_t5_folder.parent)
    make_fail(monkeypatch, verb, DataError("series 'a' is\nempty."))
    assert refused(*words(verb, chronos_t5_folder)) == "error: series 'a' is empty.\n"


@pytest.mark.parametrize("verb", COMMANDS)
def test_our_own_faults_exit_with_one_and_point_to_debug(
    cli: Any, monkeypatch: pytest.MonkeyPatch, chronos_t5_folder: Path, verb: str
) -> None:
    monkeypatch.chdir(chronos_t5_folder.parent)
    make_fail(monkeypatch, verb, KeyError("lost"))
    result = cli(*words(verb, chronos_t5_folder))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: KeyError: 'lost'")
    assert "--debug" in result.stderr
    assert "Traceback" not in result.output
    for args in ((*words(verb, chronos_t5_folder), "--debug"), ("--debug", *words(verb, chronos_t5_folder))):
        result = cli(*args)
        assert result.exit_code == 1
        assert "Traceback" in result.stderr
        assert "in fail" in result.stderr


@pytest.mark.parametrize("verb", COMMANDS)
def test_ctrl_c_in_every_verb_leaves_nothing(
    cli: Any, monkeypatch: pytest.MonkeyPatch, chronos_t5_folder: Path, verb: str
) -> None:
    folder = chronos_t5_folder.parent
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    make_fail(monkeypatch, verb, KeyboardInterrupt())
    result = cli(*words(verb, chronos_t5_folder))
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == "interrupted."
    assert sorted(path.name for path in folder.iterdir()) == before


SLOW_COMPRESS = """
import sys, time
from pathlib import Path
import rankscope.compress.methods as methods

stock = methods.truncated_svd

def slow(*args, **kwargs):
    Path("factorising").touch()
    while not Path("signalled").exists():
        time.sleep(0.02)
    return stock(*args, **kwargs)

methods.truncated_svd = slow
from rankscope_cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_killed_compress_keeps_the_old_folder(cli: Any, chronos_t5_folder: Path, number: signal.Signals) -> None:
    work = chronos_t5_folder.parent
    assert cli("compress", chronos_t5_folder, "--eps", "0.1", "--out", work / "small").exit_code == 0
    before = {path.name: path.read_bytes() for path in (work / "small").iterdir()}
    names = sorted(path.name for path in work.iterdir())
    args = ["compress", str(chronos_t5_folder), "--eps", "0.9", "--out", "small", "--force"]
    script = [sys.executable, "-c", SLOW_COMPRESS, *args]
    # A test run in the background ignores SIGINT, and its children would inherit that.
    child = subprocess.Popen(
        script,
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 300
    while not (work / "factorising").exists():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert any(path.name.endswith(".partial") for path in work.iterdir())
    child.send_signal(number)
    (work / "signalled").touch()
    out, err = child.communicate(timeout=300)
    (work / "factorising").unlink()
    (work / "signalled").unlink()
    assert child.returncode == 130, err
    assert out == ""
    assert err == "interrupted.\n"
    assert {path.name: path.read_bytes() for path in (work / "small").iterdir()} == before
    assert sorted(path.name for path in work.iterdir()) == names


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(chronos_t5_folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    script = [sys.executable, "-m", "rankscope_cli", "spectrum", str(chronos_t5_folder)]
    done = subprocess.run(script, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_that_comes_out_of_c_code_as_another_error_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankscope_cli.exits._signals", [])
    swallowed = SystemError("<built-in function f> returned a result with an exception set")
    assert report_error(swallowed) == 1
    with pytest.raises(KeyboardInterrupt):
        unwind(signal.SIGTERM, None)
    assert report_error(swallowed) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted."


def test_operating_system_errors_name_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(PermissionError(13, "Permission denied", "/root/x")) == 2
    assert capsys.readouterr().err == "error: /root/x: Permission denied\n"
    assert report_error(MemoryError()) == 1
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: tried 8 bytes."),
    ],
)
def test_torch_out_of_memory_is_no_internal_error(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error) == 1
    assert capsys.readouterr().err == "error: out of memory: choose a smaller model, batch or data set.\n"


def test_an_interrupt_while_the_app_is_built_is_an_interrupt() -> None:
    script = """
import os, signal
import rankscope_cli.app
from rankscope_cli.main import main
rankscope_cli.app.get_command = lambda app: os.kill(os.getpid(), signal.SIGINT)
main(["spectrum", "bundled-bolt"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted.\n")


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path: Path) -> None:
    """Extension modules abort the process where an exception meets one of their callbacks."""
    (tmp_path / "slow_module.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('whole')\n")
    script = """
import signal, time
from rankscope_cli.exits import unwind
signal.signal(signal.SIGINT, unwind)
try:
    import slow_module
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\ninterrupted\n", "")


def test_an_interrupt_that_still_waits_when_all_is_done_comes_too_late(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    script = """
import atexit, time
import rankscope_cli.app, rankscope_cli.exits
from rankscope_cli.main import main
rankscope_cli.exits._AGAIN = 0.3
def run(words):
    import slow_module
    return 0
rankscope_cli.app.run = run
atexit.register(time.sleep, 0.6)
main(["spectrum", "bundled-bolt"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
def test_an_interrupt_at_any_moment_is_an_interrupt_or_comes_too_late(delay: float) -> None:
    """While Python starts, verbs and libraries are imported, matrices are read, and the process ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", "rankscope_cli", "spectrum", "bundled-bolt", "--sites", "q", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    if "rankscope_cli/main.py" not in err and "runpy" in err:
        return  # Python itself had not started
    assert (child.returncode, err) in ((0, ""), (130, "interrupted.\n"), (130, ""))
    assert child.returncode == 130 or json.loads(out)
