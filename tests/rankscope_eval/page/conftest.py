"""A folder with one result of every kind, written by the reports themselves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rankscope.io import codec

if TYPE_CHECKING:
    from rankscope_eval.page.build import Page

ROOT = Path(__file__).parents[3]
VOID = {"meta", "link", "br", "hr", "col"}


class Tree(HTMLParser):
    """Elements of a page as (tag, attributes, text), and what is not closed as it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[int] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.elements[self.open[-1]][0] != tag:
            self.wrong.append(tag)
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for number in self.open:
            self.elements[number][2].append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(text)) for name, attributes, text in self.elements if name == tag]


@pytest.fixture(scope="session")
def parsed() -> Callable[[str], Tree]:
    return Tree


def bench_document(model: str = "small", baseline: str = "chronos-bolt") -> dict[str, Any]:
    from rankscope_eval.bench.report import BenchRatio, BenchReport, BenchRow
    from rankscope_eval.bench.turns import Spread

    def row(name: str, batch: int, middle: float) -> BenchRow:
        case = (f"{name}:fast", name, "fast", "cpu", "float32", batch, 1, 8, 32, 1)
        spread = Spread(middle, middle / 2, middle * 2)
        return BenchRow(*case, spread, (middle,), 1, 100.0, 10**6, 10**5, 10**4, 512, 10**6, 10**5, middle / 8, 0.125)

    rows = tuple(row(name, batch, batch * time) for batch in (1, 4) for name, time in ((baseline, 0.02), (model, 0.01)))
    ratios = tuple(BenchRatio(one.label, f"{baseline}:fast", one.batch, Spread(0.5, 0.25, 1.0), 1.0) for one in rows)
    machine = {"cpu": "A processor", "device": "cpu"}
    return codec.plain(BenchReport(machine, f"{baseline}:fast", 3, 0, rows, ratios, ()))


def eval_document(model: str = "small", baseline: str = "chronos-bolt") -> dict[str, Any]:
    from rankscope_eval.report import EvalReport, EvalRow, summarise

    # by hand: WQL is 1, 2, … of the baseline's 1, so that its geometric mean over 3 data sets is 6 ** (1 / 3)
    rows = []
    for number, dataset in enumerate(("one", "two", "three"), start=1):
        rows.append(EvalRow("toy", dataset, model, 2.0, float(number), 1, 1, 8, 1, 0.5))
        rows.append(EvalRow("toy", dataset, baseline, 1.0, 1.0, 1, 1, 8, 1, 0.25))
    summary = summarise(rows, [model, baseline], baseline)
    return codec.plain(EvalReport("toy", baseline, 0, 20, 32, None, 1.0, tuple(rows), summary))


@pytest.fixture(scope="session")
def results(
    tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]
) -> Path:
    """Spectrum, flow, embedding, compression, scores, times, table 2, sweep and theorems of tiny models."""
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress import CompressOptions, compress
    from rankscope.measure.embedding import measure_embedding
    from rankscope.measure.flow import measure_flow
    from rankscope.measure.spectrum import measure_spectrum

    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_checkpoint(Path("chronos-bolt"), tiny_config("chronos-bolt"))
        stock = open_checkpoint("chronos-bolt")
        documents = {
            "spectrum": codec.plain(measure_spectrum(stock, (0.5, 0.1), "all")),
            "flow": codec.plain(measure_flow(stock, n=2, length=32)),
            "embed": codec.plain(measure_embedding([stock], n=2, length=32)),
        }
        compress(stock, CompressOptions(eps=0.7), out="small")
        documents["small-spectrum"] = codec.plain(measure_spectrum(open_checkpoint("small"), (0.5, 0.1), "all"))
    documents["spectrum"] |= {"command": "rankscope spectrum 'chronos-bolt' --eps 0.5,0.1", "version": "0.0.9"}
    documents |= {"eval": eval_document(), "bench": bench_document()}
    check = {"id": "thm2", "instances": 10, "worst_ratio": 0.5, "pass": True}
    documents["theory"] = {"schema": "rankscope/theory@1", "checks": [check, {**check, "id": "thm9", "pass": False}]}
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    for place in (
        "figures/rankscope_paper/figures/data/table2_bundled-bolt.json",
        "benchmarks/results/by-design-sweep.json",
    ):
        shutil.copy(ROOT / place, folder)
    return folder


@pytest.fixture(scope="session")
def page(results: Path) -> Page:
    """The page of `results`."""
    from rankscope_eval.page.build import build_page

    return build_page(results, date="2026-01-31")


@pytest.fixture(scope="session")
def page_file(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `results`, written."""
    return page.write(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def one_document(tmp_path: Path) -> Callable[..., Path]:
    """``one_document(eval_document())``: a folder with one result."""

    def make(document: Any, name: str = "result.json") -> Path:
        (tmp_path / name).write_text(document if isinstance(document, str) else json.dumps(document))
        return tmp_path

    return make


@pytest.fixture
def scores() -> Callable[..., dict[str, Any]]:
    """``scores("model", "baseline")``: an evaluation."""
    return eval_document


@pytest.fixture
def times() -> Callable[..., dict[str, Any]]:
    """``times("model", "baseline")``: a benchmark."""
    return bench_document
