"""Proxy models of transformers' own classes: their data, that they learn, and what is written."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.engine import silent
from rankscope.errors import DataError, OptionError, OutputError, RankscopeError
from rankscope.families import FAMILIES
from rankscope.io import codec
from rankscope.train.proxies import PROXIES, ProxyModel, ProxyOptions, Recipe, train_proxy
from rankscope.train.proxies.series import series_batch
from rankscope.train.proxies.text_images import corrupt_spans, mask_tokens, prepare_text
from rankscope.train.proxies.train import Schedule, train

WORDS = ["the", "wind", "of", "time", "and", "a", "river", "runs", "slowly", "under", "stone", "bridges"]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of a dozen words at random, gzipped."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 9)).capitalize() + f" {i}." for i in range(1500)]
    file = tmp_path_factory.mktemp("book") / "book.txt.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    return file


def test_every_stand_in_is_a_family() -> None:
    assert set(PROXIES) == {name for name, family in FAMILIES.items() if family.proxy}
    assert all(name == proxy.family for name, proxy in PROXIES.items())


def test_series_are_scaled_by_their_histories() -> None:
    options = ProxyOptions(seed=4)
    past, future = series_batch(options, 32, 96, 16, 7, False)
    assert past.shape == (32, 96)
    assert future.shape == (32, 16)
    torch.testing.assert_close(past.mean(1), torch.zeros(32), atol=1e-4, rtol=0)
    spread = past.std(1, correction=0)
    assert ((spread - 1).abs() < 1e-3).logical_or(spread < 1e-3).all()
    assert future.abs().max() <= 10
    again = series_batch(options, 32, 96, 16, 7, False)
    assert torch.equal(past, again[0])
    for other in (series_batch(options, 32, 96, 16, 8, False), series_batch(options, 32, 96, 16, 7, True)):
        assert not torch.equal(past, other[0])


def test_corrupted_spans_put_together_are_the_window() -> None:
    """Whatever is hidden: each sentinel's span in its place gives the window back, and lengths never change."""
    first, eos, lengths = 1000, 1, set()
    for seed in range(50):
        ids = np.arange(100, 228)
        source, labels = corrupt_spans(ids, np.random.default_rng(seed), first, eos)
        assert (source.pop(), labels.pop()) == (eos, eos)
        spans: dict[int, list[int]] = {}
        for token in labels:
            if token >= first:
                spans[token] = []
            else:
                spans[next(reversed(spans))].append(token)
        restored = [part for token in source for part in (spans[token] if token >= first else [token])]
        assert restored == ids.tolist()
        assert list(spans) == [first + number for number in range(len(spans))]
        assert sum(map(len, spans.values())) == round(0.15 * 128)
        lengths.add((len(source), len(labels)))
    assert len(lengths) == 1


def test_masked_tokens_follow_bert() -> None:
    ids = np.full((200, 128), 7)
    read, labels = mask_tokens(ids, np.random.default_rng(0), mask=3, size=512)
    chosen = labels != -100
    assert (labels[chosen] == 7).all()
    assert (read[~chosen] == 7).all()
    n = chosen.sum()
    assert abs(n / ids.size - 0.15) < 4 * np.sqrt(0.15 * 0.85 / ids.size)
    masked, kept = (read[chosen] == 3).sum() / n, (read[chosen] == 7).sum() / n
    assert abs(masked - 0.8 - 0.1 / 512) < 4 * np.sqrt(0.8 * 0.2 / n)
    assert abs(kept - 0.1 - 0.1 / 512) < 4 * np.sqrt(0.1 * 0.9 / n)


def test_the_end_of_a_text_is_held_out_and_its_words_come_back(book: Path) -> None:
    text = prepare_text(ProxyOptions(text=book, vocabulary=512), ["<pad>", "</s>", "<unk>"])
    whole = gzip.decompress(book.read_bytes()).decode()
    cut = int(0.9 * len(whole))
    assert text.tokenizer.decode(text.learnt, clean_up_tokenization_spaces=False) == whole[:cut]
    assert text.tokenizer.decode(text.held_out, clean_up_tokenization_spaces=False) == whole[cut:]
    assert (text.tokenizer.pad_token_id, text.tokenizer.eos_token_id) == (0, 1)
    assert len(text.tokenizer) <= 512
    windows = text.windows(np.random.default_rng(0), 5, 64, True)
    joined = " ".join(map(str, text.held_out))
    assert all(" ".join(map(str, window)) in joined for window in windows)


SHORT = {"timesfm": 8, "timesfm-2.5": 6, "patchtst": 8, "patchtsmixer": 8, "informer": 24, "autoformer": 8, "vit": 12}


@pytest.mark.parametrize("family", [*SHORT, "t5", "bert"])
def test_a_short_training_lowers_the_held_out_loss(family: str, book: Path, tmp_path: Path) -> None:
    reads = {"text": book, "vocabulary": 512} if PROXIES[family].reads_text else {}
    options = ProxyOptions(steps=SHORT.get(family, 8), batch_size=8, width=32, layers=1, learning_rate=3e-3, **reads)
    folder = tmp_path / "model"
    report = train_proxy(family, folder, options, dtype="float16")
    assert report.held_out_after < report.held_out_before
    checkpoint = open_checkpoint(folder)
    assert checkpoint.family.name == family
    assert checkpoint.dtype == torch.float16
    assert {site.layer for site in checkpoint.sites("all")} <= {None, 0}
    checkpoint.module()
    with (folder / "loss.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["step"]) == options.steps
    card = (folder / "README.md").read_text()
    assert f"{report.parameters:,}" in card
    assert report.data in card
    saved = json.loads((folder / "standin.json").read_text())
    assert saved == {**codec.plain(report), "out": "model"}
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in folder.iterdir())


def test_a_seed_that_torch_does_not_take_is_refused() -> None:
    with pytest.raises(OptionError, match="seed must lie in 0…9223372036854775807, got 99999999999999999999"):
        ProxyOptions(seed=99999999999999999999)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        options = ProxyOptions(steps=2, batch_size=4, width=16, layers=1, seed=seed)
        train_proxy("patchtst", tmp_path / name, options)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


class Diverging(torch.nn.Module):
    """Its loss is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> object:
        return type("Answer", (), {"loss": (self.weight * x).sum() * float("inf")})


def test_a_run_that_diverges_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(options: ProxyOptions, batch_size: int) -> Recipe:
        return Recipe(Diverging(), lambda step, held_out: {"x": torch.ones(2, 2)}, "none", "none")

    monkeypatch.setitem(PROXIES, "patchtst", ProxyModel("patchtst", "x", "x", make, 3, 1, 1e-3))
    with pytest.raises(RankscopeError, match="lower learning rate"):
        train_proxy("patchtst", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_loop_finds_the_least_squares_line() -> None:
    """A linear model and its normal equations."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.1 * torch.randn(64, generator=generator)

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> object:
            return type("Answer", (), {"loss": (x @ self.w - y).square().mean()})

    model = Line()
    trained = train(model, lambda step, held_out: {"x": x, "y": y}, Schedule(600, 0.05, 0.0), silent)
    torch.testing.assert_close(model.w.detach(), torch.linalg.lstsq(x, y[:, None]).solution[:, 0], atol=2e-3, rtol=0)
    assert trained.before == pytest.approx(float(y.square().mean()), rel=1e-6)
    assert trained.after < 0.02
    assert [row[0] for row in trained.curve][-1] == 600


def test_options_that_cannot_be_used(tmp_path: Path, book: Path) -> None:
    with pytest.raises(OptionError, match="did you mean 'timesfm'"):
        train_proxy("timesfn", tmp_path / "out")
    with pytest.raises(OptionError, match="--text FILE"):
        train_proxy("bert", tmp_path / "out")
    with pytest.raises(OptionError, match="reads no text"):
        train_proxy("vit", tmp_path / "out", ProxyOptions(text=book))
    with pytest.raises(OptionError, match="--vocabulary has no effect: patchtst reads no text"):
        train_proxy("patchtst", tmp_path / "out", ProxyOptions(vocabulary=600))
    with pytest.raises(OptionError, match="float16"):
        train_proxy("vit", tmp_path / "out", dtype="fp16")
    with pytest.raises(OptionError, match="multiple of 16"):
        ProxyOptions(width=20)
    with pytest.raises(OptionError, match="vocabulary"):
        ProxyOptions(vocabulary=10)
    with pytest.raises(DataError, match="cannot be read"):
        train_proxy("t5", tmp_path / "out", ProxyOptions(text=tmp_path / "none.txt"))
    short = tmp_path / "short.txt"
    short.write_text("too short")
    with pytest.raises(DataError, match="too short"):
        train_proxy("t5", tmp_path / "out", ProxyOptions(text=short))
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        train_proxy("vit", tmp_path / "there")
    assert not (tmp_path / "out").exists()
