import gzip
from pathlib import Path

import pytest
import torch

from rankscope.errors import DataError
from rankscope.series.text import BYTE_OFFSET, read_text, text_windows, token_ids

TEXT = "It was the best of times, it was the worst of times. Ça ira! " * 8


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate(["[UNK]", "It", "it", "was", "the", "best", "worst", "of", "times"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(5)
    tokenizer.save(str(folder / "tokenizer.json"))


def test_plain_and_gzipped_texts_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert read_text(tmp_path / "a.txt") == read_text(tmp_path / "a.txt.gz") == TEXT


def test_without_a_tokenizer_ids_are_bytes(tmp_path: Path) -> None:
    ids, name = token_ids(TEXT, tmp_path, 300)
    assert name == "bytes"
    assert bytes((ids - BYTE_OFFSET).tolist()).decode() == TEXT


def test_the_models_own_tokenizer_reads_the_whole_text(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    ids, name = token_ids("It was the best of times", tmp_path, 9)
    assert name == "its own tokenizer"
    assert ids.tolist() == [1, 3, 4, 5, 7, 8]


@pytest.fixture
def pieces(tmp_path: Path) -> Path:
    """Folder of a T5 that has a SentencePiece model and nothing else to tokenise with."""
    import sentencepiece

    with (tmp_path / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([TEXT]), model_writer=file, vocab_size=60, hard_vocab_limit=False,
            pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
        )  # fmt: skip
    (tmp_path / "config.json").write_text('{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}')
    return tmp_path


def test_a_sentencepiece_model_alone_is_read(pieces: Path) -> None:
    from sentencepiece import SentencePieceProcessor

    ids, name = token_ids(TEXT, pieces, 300)
    assert name == "its own tokenizer"
    assert ids.tolist() == SentencePieceProcessor(model_file=str(pieces / "spiece.model")).encode(TEXT)


def test_a_sentencepiece_model_that_cannot_be_read_is_named(pieces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr("rankscope.series.text.find_spec", lambda name: None)
        with pytest.raises(DataError, match=r"spiece\.model needs sentencepiece: pip install sentencepiece\.$"):
            token_ids(TEXT, pieces, 300)
    (pieces / "spiece.model").write_bytes(b"no model")
    with pytest.raises(DataError, match=r"spiece\.model cannot be read as a tokenizer: "):
        token_ids(TEXT, pieces, 300)


def test_the_tokenizer_of_byt5_is_its_settings_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    ids, name = token_ids(TEXT, tmp_path, 384)
    assert name == "its own tokenizer"
    assert bytes((ids - BYTE_OFFSET).tolist()).decode() == TEXT


def test_a_tokenizer_of_foreign_code_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "foreign"}')
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}}')
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(DataError, match=r"tokenizer_config\.json cannot be read as a tokenizer: "):
        token_ids(TEXT, tmp_path, 384)
    assert not (tmp_path / "ran").exists()


def test_windows_are_parts_of_the_text() -> None:
    ids = torch.arange(50) ** 2
    got = text_windows(ids, 20, 8, 1)
    assert got.shape == (20, 8)
    for row in got:
        start = int((ids == row[0]).nonzero())
        assert torch.equal(row, ids[start : start + 8])
    assert torch.equal(got, text_windows(ids, 20, 8, 1))
    assert len({int(row[0]) for row in got}) > 5
    assert torch.equal(text_windows(ids, 20, 80, 1), ids[None])


def test_a_text_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.series.text.LARGEST", 1 << 20)
    (tmp_path / "bomb.txt").write_bytes(gzip.compress(bytes(1 << 24)))
    with pytest.raises(DataError, match="unpacks to more than 1 MiB"):
        read_text(tmp_path / "bomb.txt")


def test_bad_texts(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    (tmp_path / "blank.txt").write_text("  \n")
    packed = gzip.compress(TEXT.encode())
    (tmp_path / "cut.txt").write_bytes(packed[:40])
    flipped = [f"flipped-{at}.txt" for at in range(12, 30)]
    for at, name in zip(range(12, 30), flipped, strict=True):
        (tmp_path / name).write_bytes(packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :])
    for name, message in {
        "latin.txt": r"is not UTF-8 \(byte 3\)",
        "blank.txt": "is empty",
        "absent.txt": "cannot be read: No such file",
        "cut.txt": "cannot be read",
        **dict.fromkeys(flipped, "cannot be read|is not UTF-8"),
    }.items():
        with pytest.raises(DataError, match=message):
            read_text(tmp_path / name)
    with pytest.raises(DataError, match="vocabulary of 64 is too small for bytes"):
        token_ids(TEXT, tmp_path, 64)
    with pytest.raises(DataError, match="no token"):
        text_windows(torch.zeros(0, dtype=torch.long), 1, 4, 0)
    write_tokenizer(tmp_path)
    with pytest.raises(DataError, match="ids up to 8, but the model knows 7"):
        token_ids("times", tmp_path, 7)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read as a tokenizer"):
        token_ids("times", tmp_path, 7)


class Panic(BaseException):
    """As pyo3 raises where Rust panics."""


@pytest.mark.parametrize(("raised", "told"), [(Panic, DataError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_a_panic_of_the_tokenizer_is_an_error_and_ctrl_c_is_none(
    raised: type[BaseException], told: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        @staticmethod
        def from_file(_: str) -> None:
            raise raised("index out of bounds")

    write_tokenizer(tmp_path)
    monkeypatch.setattr("tokenizers.Tokenizer", Broken)
    with pytest.raises(told):
        token_ids("times", tmp_path, 64)
