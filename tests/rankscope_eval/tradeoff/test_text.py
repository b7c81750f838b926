import gzip
import json
from pathlib import Path

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.compress.calibration.text import calibration_windows, read_tokens
from rankscope.errors import DataError
from rankscope_eval.tradeoff.overlap import log_perplexity, text_windows


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    """Write 200 token ids of the toy vocabulary."""
    file = tmp_path / "ids.txt"
    file.write_text(" ".join(str(2 + (7 * n * n) % 61) for n in range(200)))
    return file


def add_tokenizer(folder: Path, words: list[str]) -> None:
    """Write a tokenizer that knows some words, as text models have one."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(
        models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2} | {w: 3 + n for n, w in enumerate(words)}, "<unk>")
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder)


def test_ids_and_text_are_told_apart(t5_folder: Path, tmp_path: Path, ids: Path) -> None:
    checkpoint = open_checkpoint(t5_folder)
    assert read_tokens(ids, checkpoint)[:3].tolist() == [2, 9, 30]
    (tmp_path / "ids.json").write_text(json.dumps([5, 6, 7]))
    assert read_tokens(tmp_path / "ids.json", checkpoint).tolist() == [5, 6, 7]
    book = tmp_path / "book.txt.gz"
    book.write_bytes(gzip.compress(b"the best of times, the worst"))
    with pytest.raises(DataError, match="no tokenizer"):
        read_tokens(book, checkpoint)
    add_tokenizer(t5_folder, ["the", "best", "of", "times"])
    assert read_tokens(book, open_checkpoint(t5_folder)).tolist() == [3, 4, 5, 6, 2, 3, 2]


def test_unusable_texts_are_named(t5_folder: Path, tmp_path: Path, ids: Path) -> None:
    checkpoint = open_checkpoint(t5_folder)
    for content, part in ((b"1 2 64", "64 is outside"), (b"\xff\xfe", "UTF-8"), (b"\x1f\x8b\x00", "cannot be read")):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(DataError, match=part):
            read_tokens(tmp_path / "bad", checkpoint)
    with pytest.raises(DataError, match="No such file"):
        read_tokens(tmp_path / "nowhere", checkpoint)
    tokens = read_tokens(ids, checkpoint)
    with pytest.raises(DataError, match="half of it has 100 tokens, one window 120"):
        text_windows(tokens, 5, context=80, horizon=40)
    with pytest.raises(DataError, match="too short"):
        calibration_windows(tokens, 5, 0, context=80, horizon=40)


def test_no_window_is_both_calibrated_on_and_scored(t5_folder: Path) -> None:
    tokens = torch.arange(200)
    scored = text_windows(tokens, 100, context=16, horizon=4)
    assert scored.name == "text:5"
    assert scored.context[0].tolist() == list(range(100, 116))
    assert scored.future.flatten().tolist() == [float(n) for s in range(5) for n in range(116 + 20 * s, 120 + 20 * s)]
    assert len(text_windows(tokens, 2, context=16, horizon=4)) == 2
    seen = [calibration_windows(tokens, 50, seed, context=16, horizon=4) for seed in (0, 0, 1)]
    assert max(float(one.future.max()) for one in seen) < 100
    assert torch.equal(seen[0].context, seen[1].context)
    assert not torch.equal(seen[0].context, seen[2].context)


def test_log_perplexity_equals_a_slow_loop(t5_folder: Path, ids: Path) -> None:
    checkpoint = open_checkpoint(t5_folder)
    module = checkpoint.module()
    windows = text_windows(read_tokens(ids, checkpoint), 4, context=16, horizon=6)
    losses = []
    for context, future in zip(windows.context.long(), windows.future.long(), strict=True):
        for position in range(6):
            read = torch.cat([torch.tensor([0]), future[:position]])
            with torch.no_grad():
                logits = module(input_ids=context[None], decoder_input_ids=read[None]).logits[0, -1]
            losses.append(-float(logits.double().log_softmax(-1)[future[position]]))
    assert log_perplexity(module, checkpoint, windows) == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_the_public_domain_text_is_read(shared_folder: Path, t5_folder: Path) -> None:
    add_tokenizer(t5_folder, ["it", "was", "the", "best", "of", "times"])
    tokens = read_tokens(shared_folder / "data" / "text" / "tale_of_two_cities.txt.gz", open_checkpoint(t5_folder))
    assert len(tokens) > 135_000
    assert len(text_windows(tokens, 1000)) > 200
