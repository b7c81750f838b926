"""Contents of the page, of which nothing untrusted becomes part."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.io import codec
from rankscope_eval.page.build import Page, build_page

HOSTILE = "<script>alert(1)</script>\"'&$x_{$\x00\u202e"

HOLD = {"held", "better", "no worse"}
"""Verdicts of a compression that is not shown to lose more than the margin."""


@pytest.fixture(scope="session")
def tree(page_file: Path, parsed: Callable[[str], Any]) -> Any:
    return parsed(page_file.read_text(encoding="utf-8"))


def test_the_page_is_well_formed_and_has_no_id_twice(tree: Any) -> None:
    assert tree.wrong == []
    assert tree.open == []
    ids = [attributes["id"] for _, attributes, _ in tree.elements if "id" in attributes]
    assert len(ids) > 100
    assert len(ids) == len(set(ids))


def test_references_lead_somewhere(tree: Any) -> None:
    ids = {attributes["id"] for _, attributes, _ in tree.elements if "id" in attributes}
    for _, attributes, _ in tree.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert (attributes.get(name) or next(iter(ids))) in ids
        if (attributes.get("href") or "").startswith("#"):
            assert str(attributes["href"])[1:] in ids
        for found in re.findall(r"url\(#([^)]+)\)", " ".join(str(value) for value in attributes.values())):
            assert found in ids


def test_nothing_comes_from_elsewhere(page_file: Path, tree: Any) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=\"(?!#|data:,)", text)
    assert "@import" not in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert [attributes for attributes, _ in tree.all("script")] == [{}]


def test_every_section_is_there_and_in_the_navigation(tree: Any) -> None:
    sections = [attributes["id"] for attributes, _ in tree.all("section")]
    assert sections == ["summary", "models", "waste", "savings", "evidence", "commands", "provenance"]
    links = [attributes["href"] for attributes, _ in tree.all("a")]
    assert [f"#{name}" for name in sections] == links[1:]
    assert [text for _, text in tree.all("h2")][3] == "Sizes"


def test_tables_have_captions_and_heads_with_a_scope(tree: Any) -> None:
    assert len(tree.all("caption")) == len(tree.all("table")) > 10
    assert {attributes.get("scope") for attributes, _ in tree.all("th")} == {"row", "col"}


def test_charts_say_what_they_show(tree: Any) -> None:
    charts = [attributes for attributes, _ in tree.all("svg")]
    assert len(charts) > 8
    assert all(attributes["role"] == "img" for attributes in charts)
    assert len(tree.all("desc")) == len(charts)
    assert all(text.strip() for _, text in tree.all("desc"))
    assert not re.search(r"(fill|stroke): ?(#|black|white)", " ".join(str(a.get("style")) for _, a, _ in tree.elements))


def test_numbers_are_those_of_the_results(results: Path, tree: Any) -> None:
    cells = [text for _, text in tree.all("td")] + [text for _, text in tree.all("th")]
    report = json.loads((results / "small" / "compress.json").read_text())
    assert f"{report['parameters']['after']:,}" in cells
    spectrum = json.loads((results / "spectrum.json").read_text())
    widest = max(spectrum["sites"], key=lambda site: site["sigma_max"])
    assert any(cell.startswith(f"{widest['sigma_max']:.2f}"[:4]) for cell in cells)
    assert f"{6 ** (1 / 3):.3f}" in cells  # the geometric mean of 1, 2 and 3
    (digest,) = (
        text for _, text in tree.all("code") if text == hashlib.sha256((results / "eval.json").read_bytes()).hexdigest()
    )
    assert len(digest) == 64


def test_the_summary_speaks_of_size_scores_and_times(results: Path, page: Page) -> None:
    said = " ".join(page.summary)
    report = json.loads((results / "small" / "compress.json").read_text())
    share = 100 * (1 - report["parameters"]["after"] / report["parameters"]["before"])
    assert page.models[:2] == ("chronos-bolt", "small")
    assert "chronos-bolt is a Chronos-Bolt model of " + f"{report['parameters']['before']:,} parameters" in said
    assert "small scores 1.817 times the WQL and 2.000 times the MASE of chronos-bolt over 3 data sets" in said
    assert "small:fast forecasts a batch of 4 in 40.0 ms, 0.500 times what chronos-bolt:fast takes" in said
    judged = json.loads((results / "table2_bundled-bolt.json").read_text())["judgements"]
    sound = [one for one in judged if {one[f"{name}_verdict"]["word"] for name in ("WQL", "MASE")} <= HOLD]
    best = min(sound, key=lambda one: one["ratio"])
    low, high = best["WQL_interval"]
    where = f"{best['method']} at {best['ratio']:.3f} of the attention"
    assert f"{where}: WQL {best['relative_WQL']:.3f} (95 %: {low:.3f} to {high:.3f})" in said
    assert f"−{share:.0f}\u00a0%" in page.html or f"−{share:.1f}\u00a0%" in page.html


def test_what_was_made_of_a_model_stands_with_it(results: Path, tree: Any) -> None:
    body = [text for _, text in tree.all("tr")]
    (row,) = [text for text in body if text.startswith("smallChronos-Bolt")]
    assert "chronos-bolt, svd to" in row
    assert "2 encoder layers, 3 decoder layers" in row
    assert "width" not in row  # heads and streams of a compressed model have one each


def test_recorded_commands_are_kept_and_others_are_rebuilt(tree: Any) -> None:
    (text,) = [text for _, text in tree.all("pre")]
    assert "# spectrum.json\nrankscope spectrum 'chronos-bolt' --eps 0.5,0.1\n" in text
    again = "rankscope compress chronos-bolt --recipe small/recipe.yaml --out small-again"
    assert f"# small/compress.json\n{again}\n" in text
    assert ": put together again" in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[0].startswith("rankscope compress")  # what others need comes first


def test_a_recipe_lies_where_its_model_was_written(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "small", tmp_path / "small")
    file = tmp_path / "small" / "compress.json"
    file.write_text(file.read_text().replace('"out": "small"', '"out": "results/small/"'), encoding="utf-8")
    again = "rankscope compress chronos-bolt --recipe results/small/recipe.yaml --out results/small-again"
    assert f"# small/compress.json\n{again}<" in build_page(tmp_path).html


def test_rebuilt_commands_are_commands(tree: Any) -> None:
    import shlex

    from rankscope_cli.app import load_verb

    (text,) = [text for _, text in tree.all("pre")]
    commands = [shlex.split(line) for line in text.splitlines() if not line.startswith(("#", "python "))]
    assert {"compress", "sweep"} <= {verb for _, verb, *_ in commands}
    for program, verb, *args in commands:
        context = load_verb(verb).make_context(verb, args)
        assert (program, context.args) == ("rankscope", [])  # the verb's own parser took every word


def test_scores_of_the_baseline_alone_are_compared_with_nothing(one_document: Callable[..., Path]) -> None:
    from rankscope_eval import evaluate

    html = build_page(one_document(codec.plain(evaluate(["seasonal-naive"], tasks=["nile", "co2", "elnino"])))).html
    assert "3 data sets, seed 0. Lower is better.</p>" in html
    assert "Scores over those of" not in html
    assert "<tbody></tbody>" not in html


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(results: Path, page: Page, tmp_path: Path) -> None:
    copy = tmp_path / results.name
    shutil.copytree(results, copy)
    (copy / "report.html").write_text("an older page")
    again = build_page(copy, date="2026-01-31")
    assert again.html == page.html


@pytest.mark.slow
def test_names_are_text_whatever_they_hold(
    one_document: Callable[..., Path], scores: Any, times: Any, results: Path, parsed: Any
) -> None:
    one_document(scores(HOSTILE, "base" + HOSTILE), "scores.json")
    one_document(times(HOSTILE, "base" + HOSTILE), "times.json")
    for name in ("spectrum", "flow"):
        document = json.loads((results / f"{name}.json").read_text())
        one_document(
            {**document, "model": HOSTILE, "command": f"rankscope {HOSTILE}", "version": HOSTILE}, f"{name}.json"
        )
    embed = json.loads((results / "embed.json").read_text())
    embed["rows"][0]["model"] = HOSTILE
    one_document(embed, "embed.json")
    compressed = json.loads((results / "small" / "compress.json").read_text())
    compressed |= {
        "model": HOSTILE,
        "out": HOSTILE + "2",
        "method": HOSTILE,
        "notes": [HOSTILE],
        "calibration": HOSTILE,
    }
    compressed["sites"][0] |= {"role": HOSTILE, "note": HOSTILE, "name": HOSTILE}
    one_document(compressed, "compress.json")
    folder = one_document("{}", "<img src=x onerror=alert(1)>.json")
    page = build_page(folder, title=HOSTILE)
    assert len(page.used) == 6, page.unused
    tree = parsed(page.html)
    assert tree.wrong == []
    assert len(tree.all("script")) == 1
    assert tree.all("img") == []
    assert not any(name.startswith("on") for _, attributes, _ in tree.elements for name in attributes)
    assert any("<script>alert(1)</script>" in text for _, text in tree.all("h3"))
    assert "\x00" not in page.html


def test_results_that_are_alike_are_shown_once(one_document: Callable[..., Path], scores: Any) -> None:
    one_document(scores(), "a.json")
    page = build_page(one_document(scores(), "b.json"))
    assert [one.path for one in page.used] == ["a.json"]
    assert [(one.path, one.reason) for one in page.unused] == [("b.json", "duplicates a.json")]


def test_scores_as_csv_are_shown(one_document: Callable[..., Path]) -> None:
    page = build_page(one_document("dataset,model,MASE,WQL\nnile,naive,1.25,0.5\n", "scores.csv"))
    assert "1.250" in page.html
    assert page.used[0].schema == "scores as CSV"


def test_a_compressed_checkpoint_alone_is_a_page(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "small", tmp_path / "only" / "small")
    page = build_page(tmp_path / "only")
    assert page.checkpoints == ("small",)
    assert {"chronos-bolt", "small"} == set(page.models)


def test_scores_alone_are_summed_up(one_document: Callable[..., Path], scores: Any) -> None:
    page = build_page(one_document(scores("cut", "naive")))
    assert page.models == ("cut",)
    assert page.summary == (
        "cut scores 1.817 times the WQL and 2.000 times the MASE of naive over 3 data sets of toy (lower is better).",
    )


@pytest.mark.parametrize(
    ("word", "verdict", "there", "tone"),
    [("held", "held within 2 %", "but worse", "better"), ("worse", "worse", "most", "worse")],
)
def test_verdicts_stand_in_tiles_and_tables_with_a_tone(
    results: Path,
    one_document: Callable[..., Path],
    scores: Any,
    parsed: Any,
    word: str,
    verdict: str,
    there: str,
    tone: str,
) -> None:
    document = scores("small", "chronos-bolt")
    held = {"word": "held", "margin": 0.02, "interval": [0.99, 1.01], "worst": "two", "worst_ratio": 1.5}
    document["summary"][0] |= {
        "WQL_verdict": {**held, "word": word, "worst_interval": [1.2, 1.9]},
        "MASE_verdict": {**held, "word": "not shown", "interval": [0.9, 1.2], "worst_interval": None},
    }
    folder = one_document(document)
    shutil.copy(results / "small" / "compress.json", folder)
    page = build_page(folder)
    tree = parsed(page.html)
    tiles = [text for attributes, text in tree.all("div") if attributes.get("class") in ("better", "worse", "open")]
    assert [text.split("data sets")[1] for text in tiles] == [
        f"{verdict}, {there} on two: 1.5001.817".replace(" %", "\u00a0%"),
        "not shown; worst on two: 1.5002.000",
    ]
    tones = [attributes["class"] for attributes, _ in tree.all("td") if "says" in str(attributes.get("class"))]
    assert tones == [f"says {tone}", "says worse", "says open"]
    assert f"WQL {verdict}, MASE not shown. WQL is shown to be worse on two (1.500)." in page.summary[-1]
    first = next(text for attributes, text in tree.all("dl"))
    assert first.startswith("parameters of the whole model")


def test_weights_are_named_by_their_hash(results: Path, tree: Any) -> None:
    digest = hashlib.sha256((results / "small" / "model.safetensors").read_bytes()).hexdigest()
    (row,) = [text for _, text in tree.all("tr") if text.startswith("small/model.safetensors")]
    assert digest in row


def test_what_was_never_trained_is_named_and_not_drawn(page: Page, tree: Any) -> None:
    assert "Never trained, and left out of maps and charts: decoder self-attention Q and decoder self-attention K." in (
        page.html
    )
    maps = [text for attributes, text in tree.all("table") if attributes.get("class") == "heat"]
    (decoder,) = [text for text in maps if text.startswith("Decoder: ε-rank")][:1]
    assert "self-attention V" in decoder
    assert "self-attention Q" not in decoder


def test_scores_with_intervals_show_them(one_document: Callable[..., Path], scores: Any) -> None:
    document = scores("cut", "naive")
    document["summary"][0] |= {"WQL_interval": [1.2, 2.4], "MASE_interval": [0.9, 2.1]}
    page = build_page(one_document(document))
    assert (
        "1.817 times the WQL (95 %: 1.200 to 2.400) and 2.000 times the MASE (95 %: 0.900 to 2.100)" in page.summary[0]
    )
    assert "1.200 – 2.400" in page.html
    assert "95\u00a0% intervals by bootstrap over data sets and series." in page.html


def test_numbers_that_no_chart_can_hold_leave_the_tables(one_document: Callable[..., Path], scores: Any) -> None:
    document = scores()
    document["rows"][0]["WQL"] = 1e308
    page = build_page(one_document(document))
    assert "These numbers cannot be drawn." in page.html
    assert "1.000e+308" in page.html


def test_commands_come_in_the_order_in_which_they_can_be_run(results: Path, one_document: Callable[..., Path]) -> None:
    """Files are named so that no order of paths is the right one: c is made of b, b of a, and each is calibrated."""
    made = json.loads((results / "small" / "compress.json").read_text())
    moments = {"schema": "rankscope/calibrate@1", "out": "", "corpus": "mixture:2", "series": 2, "decoder": "none"}
    moments |= {"batch_size": 2, "seed": 0, "dtype": "float32", "streams": []}
    one_document({**made, "model": "b", "out": "c", "command": "rankscope compress b"}, "1.json")
    one_document({**moments, "model": "b", "command": "rankscope calibrate b"}, "2.json")
    one_document({**made, "model": "a", "out": "b", "command": "rankscope compress a"}, "3.json")
    html = build_page(one_document({**moments, "model": "a", "command": "rankscope calibrate a"}, "4.json")).html
    assert re.findall(r"# (\d)\.json", html) == ["4", "3", "2", "1"]


def test_theorems_that_do_not_apply_are_not_counted_as_failed(one_document: Callable[..., Path]) -> None:
    check = {"id": "thm2", "instances": 10, "worst_ratio": 0.5, "pass": True}
    none = {"id": "cor2", "instances": 0, "worst_ratio": None, "pass": False, "unmet": ["k = 1 is needed"]}
    html = build_page(one_document({"schema": "rankscope/theory@1", "checks": [check, none]})).html
    assert html.count("1 of 1 check of theorems hold; 1 not applicable.") == 2
    assert "not applicable; k = 1 is needed" in html
    assert ">no<" not in html


def test_ranks_of_embeddings_are_out_of_the_largest_possible(results: Path, one_document: Callable[..., Path]) -> None:
    embed = json.loads((results / "embed.json").read_text())
    embed["rows"] = embed["rows"][:1]
    row = embed["rows"][0]
    row["tokens"] = row["d_model"] - 3
    html = build_page(one_document(embed)).html
    rank = next(iter(row["eps_ranks"].values()))
    assert f"{rank} of {row['d_model'] - 3}." in html
    assert f"{rank} of {row['d_model']}." not in html


def test_the_flow_of_images_is_of_images(results: Path, one_document: Callable[..., Path]) -> None:
    flow = json.loads((results / "flow.json").read_text())
    html = build_page(one_document({**flow, "modality": "image", "signal": "images"})).html
    assert "(2 generated images)" in html


def test_a_step_without_targets_leaves_the_others_of_the_chart() -> None:
    from rankscope_eval.page.sections.scores import PLACES, _at_places

    between = _at_places(np.array([0.2, np.nan, 0.8]))
    assert (between[0], between[-1]) == (0.2, 0.8)
    np.testing.assert_allclose(between[len(PLACES) // 2], 0.5)
    assert np.isnan(_at_places(np.full(3, np.nan))).all()
