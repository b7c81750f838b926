"""Values in a config's YAML that are of another kind than their field cost one line, and nothing is written."""

import pytest


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("learning_rate: fast", "learning_rate is 'fast': it must be a number."),
        ("max_steps: '100'", "max_steps is '100': it must be a whole number."),
        ("compile: yes-please", "compile is 'yes-please': it must be true or false."),
        ("spectra: {steps: 5}", "spectra.steps is 5: it must be a list."),
    ],
)
def test_pretrain_refuses(text, named, refused, tmp_path):
    (tmp_path / "bad.yaml").write_text(text)
    assert named in refused("pretrain", tmp_path / "bad.yaml", "--out", tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_sweep_refuses(refused, tmp_path):
    (tmp_path / "bad.yaml").write_text("axes: {max_steps: ['9']}\n")
    named = refused("sweep", tmp_path / "bad.yaml", "--out", tmp_path / "x")
    assert "point 'max_steps-9': max_steps is '9': it must be a whole number." in named
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]
