"""Sweeps as YAML: which points they mean, and what is refused."""

import itertools

import pytest

from rankscope.errors import OptionError
from rankscope.train import PretrainConfig
from rankscope.train.sweeps import choose_points, find_sweep, read_sweep, shipped_sweeps
from rankscope.train.sweeps.spec import with_fields, with_steps

CHEAP = "base: {max_steps: 9, warmup_steps: 1, save_steps: 3}\n"


def written(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return file


def test_axes_mean_every_combination(tmp_path):
    text = CHEAP + (
        "axes:\n  model.d_ff: [32, 64]\n  width:\n    model.d_model: [16, 32, 48]\n    model.num_heads: [1, 2, 3]\n"
        "seeds: [0, 7]\n"
    )
    points = read_sweep(written(tmp_path, text)).expand()
    found = [
        (p.name, p.config.model.d_ff, p.config.model.d_model, p.config.model.num_heads, p.config.seed) for p in points
    ]
    expected = [
        (f"d_ff-{ff}-width-{d}-s{seed}", ff, d, d // 16, seed)
        for seed, ff, d in itertools.product((0, 7), (32, 64), (16, 32, 48))
    ]
    assert found == expected
    assert points[0].config.max_steps == 9
    assert points[0].fields == {"model.d_ff": 32, "model.d_model": 16, "model.num_heads": 1, "seed": 0}


def test_points_change_only_what_they_name(tmp_path):
    text = CHEAP + "points:\n  plain: {}\n  r3: {low_rank.r0: 3.0, low_rank.layout: factored, seed: 4}\n"
    plain, r3 = read_sweep(written(tmp_path, text)).expand()
    assert plain.config == PretrainConfig(max_steps=9, warmup_steps=1, save_steps=3)
    assert r3.config.low_rank is not None
    assert (r3.config.low_rank.r0, r3.config.low_rank.layout, r3.config.low_rank.alpha) == (3.0, "factored", 0.27)
    assert r3.config.seed == 4
    assert (plain.name, r3.name) == ("plain", "r3")


def test_an_inherited_embedding_refers_to_the_point_of_the_same_seed(tmp_path):
    text = CHEAP + (
        "points:\n  first: {}\n  second: {embedding.source: inherit, embedding.model: '@first'}\nseeds: [1, 2]\n"
    )
    points = {point.name: point for point in read_sweep(written(tmp_path, text)).expand()}
    assert points["second-s2"].needs == "first-s2"
    assert points["first-s2"].needs == ""
    assert choose_points(read_sweep(tmp_path / "mine.yaml"), only=["second-s1"])[1] == {"first-s1", "second-s1"}


@pytest.mark.parametrize("name", ["width", "chebyshev", "patch", "heads", "design", "design-bolt"])
def test_shipped_sweeps_say_what_the_figures_need(name):
    spec = find_sweep(name)
    points = spec.expand()
    assert spec.name == name
    assert "Fig" in spec.about or "Table" in spec.about
    assert all(point.config.max_steps >= 5000 for point in points)
    heads = {(p.config.model.d_model, p.config.model.num_heads * p.config.model.d_kv) for p in points}
    assert all(d == inner for d, inner in heads)


def test_the_shipped_values():
    assert set(shipped_sweeps()) >= {"width", "chebyshev", "patch", "heads", "design", "design-bolt"}
    assert [p.config.model.d_model for p in find_sweep("width").expand()] == [64, 128, 256, 512]
    chebyshev = find_sweep("chebyshev").expand()
    assert [p.config.embedding.rank for p in chebyshev] == [1, 2, 4, 8, 16, 32]
    assert all(p.config.embedding.frozen for p in chebyshev)
    assert [p.config.model.patch_size for p in find_sweep("patch").expand()] == [1, 2, 4, 8, 16, 32]
    assert [p.config.model.num_heads for p in find_sweep("heads").expand()] == [3, 6, 12, 24, 48, 96]
    table3 = {(3.0, 0.27), (5.0, 0.35), (7.0, 0.40)}
    design = find_sweep("design").expand()
    for start in ("random", "inherit"):
        ranks = {
            (p.config.low_rank.r0, p.config.low_rank.alpha)
            for p in design
            if p.config.low_rank and p.config.embedding.source == start
        }
        assert ranks == table3
    assert {p.needs for p in design} == {"", "baseline"}
    table4 = {(2.0, 0.25), (3.0, 0.50), (5.0, 0.70)}
    bolt = find_sweep("design-bolt").expand()
    assert {(p.config.low_rank.r0, p.config.low_rank.alpha) for p in bolt if p.config.low_rank} == table4


def test_options_replace_steps_and_seed():
    spec = find_sweep("width")
    points, chosen = choose_points(spec, steps=200, seed=3, only=["d-64"])
    assert chosen == {"d-64"}
    assert {(p.config.max_steps, p.config.warmup_steps, p.config.save_steps, p.config.seed) for p in points} == {
        (200, 10, 20, 3)
    }
    assert [p.name for p in points] == ["d-64", "d-128", "d-256", "d-512"]
    with pytest.raises(OptionError, match=r"point 'd-46' is not known: did you mean 'd-64'"):
        choose_points(spec, only=["d-46"])


def test_with_steps_scales_what_depends_on_the_length():
    config = with_fields(
        PretrainConfig(),
        {
            "max_steps": 1000,
            "warmup_steps": 200,
            "decay_steps": 300,
            "spectra.steps": [0, 100, 500],
            "spectra.every": 250,
            "keep_steps": [0, 20, 1000],
            "mixture.curriculum": 400,
        },
    )
    short = with_steps(config, 10)
    assert (short.max_steps, short.warmup_steps, short.decay_steps, short.save_steps, short.log_steps) == (
        10,
        2,
        3,
        5,
        1,
    )
    assert (short.spectra.steps, short.spectra.every) == ((0, 1, 5), 2)
    assert (short.keep_steps, short.mixture.curriculum) == ((0, 10), 4)
    assert with_steps(config, 1000) == config
    with pytest.raises(OptionError, match="steps 0 is not usable"):
        with_steps(config, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: {model.d_modle: [1]}", r"'model\.d_modle' is not known: did you mean 'model\.d_model'"),
        ("axes: {seed.x: [1]}", "'seed.x' is not known"),
        ("axis: {model.d_model: [1]}", "field 'axis' is not known: did you mean 'axes'"),
        ("base: {max_step: 4}\naxes: {seed: [1]}", "'max_step' is not known: did you mean 'max_steps'"),
        ("points: {a: {}}\naxes: {seed: [1]}", "either points or axes"),
        ("base: {max_steps: 9}", "either points or axes"),
        ("points: {a: 3}", "point 'a' must map dotted fields to values"),
        ("points: {a/b: {}}", "point 'a/b' may hold letters"),
        ("points: {8: {}}", "points: the name 8 is not text: write '8', in quotes"),
        ("axes: {8: [1]}", "axes: the name 8 is not text"),
        ("points: [a]", "points must be a mapping"),
        (
            "axes: {d: {model.d_model: [1, 2], model.d_ff: [1]}}",
            r"lists of different lengths: model\.d_model 2, model\.d_ff 1",
        ),
        ("axes: {model.d_model: 4}", "axis 'model.d_model' is 4: it must be a list of values"),
        ("axes: {model.d_model: []}", "must be a list of values"),
        ("axes: {model.dropout_rate: [0.1, 0.10]}", "two points 'dropout_rate-0p1'"),
        (
            "points: {b: {embedding.source: inherit, embedding.model: '@a'}, a: {}}",
            "inherits from @a, which is not an earlier",
        ),
        ("points: {a: {max_steps: 0}}", "point 'a': warmup_steps|point 'a': max_steps is 0"),
        ("points: {a: {}}\nseeds: [x]", "seeds must be whole numbers"),
        ("points: {a: {}}\neps: [1.5]", "eps must lie in"),
        ("points: {a: {}}\nbase: {validation: {every: 3}}", "validation.every has no place in a sweep"),
        ("[1]", "must be a mapping with base"),
        ("a: [", "not valid YAML"),
    ],
)
def test_bad_sweeps_get_one_line(tmp_path, text, message):
    with pytest.raises(OptionError, match=message) as caught:
        read_sweep(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_unknown_names_are_guessed(tmp_path):
    with pytest.raises(OptionError, match="'widht' is not known: did you mean 'width'"):
        find_sweep("widht")
    with pytest.raises(OptionError, match="cannot be read"):
        read_sweep(tmp_path / "none.yaml")
