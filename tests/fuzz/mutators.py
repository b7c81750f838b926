"""Mutations of bytes, JSON, YAML, safetensors headers and tables; all of them functions of a random generator."""

from __future__ import annotations

import copy
import json
import random
import struct
import sys
from collections.abc import Iterator
from typing import Any

INTEGERS = (
    0,
    -1,
    1,
    2,
    7,
    255,
    65_536,
    2_000_000,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
)
FLOATS = (0.0, -0.0, 1e-320, 0.5, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    " ",
    "a",
    "x" * 9_999,
    "é" * 300,
    "\ud800",
    "\x00",
    "\x1b[31m",
    "../../etc/passwd",
    "=1+1",
    "<script>",
    "1e999",
    "nan",
    "None",
    "2024-13-45",
    "0001-01-01",
    "9999-12-31T23:59:59.999999999",
    "1500-06-01",
    "2024-01-01T00:00:00+14:00",
)
HOSTILE_YAML = (
    "name: 2024-13-45\n",
    "[" * 3_000,
    "!!int x\n",
    "!!python/object/apply:os.system [true]\n",
    "&a [*a]\n",
    "9" * 5_000 + "\n",
    "? [a]\n: b\n",
    "{a: 1, a: 2}\n",
    "\ufeff- a\n",
    "- !!binary x\n",
    "- !!timestamp 2024-99-99\n",
    "%YAML 9.9\n---\na\n",
    "a: *b\n",
    "\t- a\n",
    "- !!set {a, b}\n",
    "- 0o9\n- 1_000\n- 12:30:45\n- .inf\n- ~\n",
)


def scalar(rng: random.Random) -> Any:
    """A value that few programs expect."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(INTEGERS)
    if kind == 1:
        return rng.choice(FLOATS)
    if kind == 2:
        return rng.choice(TEXTS)
    if kind == 3:
        return rng.choice((None, True, False))
    if kind == 4:
        return 10 ** rng.choice((20, 309, 4_000))
    return rng.choice(([], {}, [[]], [None], {"": {}}, [0] * 100, [{"a": []}]))


def nested(depth: int) -> str:
    """A text of so many lists within one another."""
    return "[" * depth + "]" * depth


def places(value: Any, limit: int = 400) -> list[tuple[Any, Any]]:
    """Containers and keys of all values within one."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < limit:
        one = waiting.pop()
        pairs: Iterator[tuple[Any, Any]] = iter(())
        if isinstance(one, dict):
            pairs = iter(one.items())
        elif isinstance(one, list):
            pairs = iter(enumerate(one))
        for key, inner in pairs:
            found.append((one, key))
            waiting.append(inner)
    return found


def document(rng: random.Random, value: Any) -> Any:
    """A copy of plain data with one to four values changed, removed, doubled or exchanged."""
    made = {"document": copy.deepcopy(value)}
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        held, key = rng.choice(places(made))
        kind = rng.randrange(8)
        if kind <= 2:
            held[key] = scalar(rng)
        elif kind == 3 and held is not made:
            del held[key]
        elif kind == 4:
            held[key] = [held[key]]
        elif kind == 5 and isinstance(held[key], (int, float)) and not isinstance(held[key], bool):
            held[key] = rng.choice((-held[key], held[key] * 1_000_000, str(held[key]), held[key] + 1))
        elif kind == 6:
            other, name = rng.choice(places(made))
            held[key], other[name] = other[name], held[key]
            made = json.loads(json.dumps(_finite(made)))  # no cycles
        elif isinstance(held, dict) and held is not made:
            held[rng.choice(TEXTS)] = held.pop(key)
    return made.get("document")


def _finite(value: Any, depth: int = 0) -> Any:
    if depth > 12:
        return None
    if isinstance(value, dict):
        return {str(key): _finite(inner, depth + 1) for key, inner in value.items()}
    return [_finite(inner, depth + 1) for inner in value] if isinstance(value, list) else value


def json_file(rng: random.Random, value: Any) -> bytes:
    """A JSON file of a changed document; of some the text is damaged, too."""
    kind = rng.randrange(12)
    if kind == 0:
        return nested(rng.choice((900, 5_000, 100_000))).encode()
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(document(rng, value)).encode()
    finally:
        sys.set_int_max_str_digits(4_300)
    return data(rng, text) if kind <= 3 else text


def yaml_file(rng: random.Random, value: Any) -> bytes:
    """A YAML file of a changed document; or of what YAML alone can say."""
    import yaml

    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(HOSTILE_YAML).encode("utf-8", "surrogatepass")
    try:
        text = yaml.safe_dump(document(rng, value), allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError, RecursionError):
        return json_file(rng, value)
    if kind == 1:
        lines = text.split(b"\n")
        lines.insert(rng.randrange(len(lines)), rng.choice(HOSTILE_YAML)[:200].encode("utf-8", "surrogatepass"))
        return b"\n".join(lines)
    return data(rng, text) if kind == 2 else text


def data(rng: random.Random, content: bytes) -> bytes:
    """Bytes with bits flipped, stretches removed, doubled, zeroed or overwritten by numbers that lengths may be."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not made:
            return b""
        at = rng.randrange(len(made))
        kind = rng.randrange(7)
        if kind == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at] = rng.randrange(256)
        elif kind == 2:
            del made[at : at + rng.choice((1, 4, 8, 64, 4_096))]
        elif kind == 3:
            made[at:at] = made[at : at + rng.choice((1, 4, 8, 64))]
        elif kind == 4:
            size = rng.choice((1, 4, 8, 64))
            made[at : at + size] = bytes(len(made[at : at + size]))
        elif kind == 5:
            form, width = rng.choice((("<i", 32), ("<q", 64)))
            number = rng.choice([one for one in INTEGERS if -(2 ** (width - 1)) <= one < 2 ** (width - 1)])
            packed = struct.pack(form, number)
            made[at : at + len(packed)] = packed
        else:
            del made[at:]
    return bytes(made)


def safetensors_file(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file with a changed header, or with damaged bytes."""
    kind = rng.randrange(5)
    if kind == 0:
        return data(rng, content[:4_096]) + content[4_096:]
    (size,) = struct.unpack("<Q", content[:8])
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    names = [name for name in header if name != "__metadata__"]
    if kind == 1:  # where a tensor lies, or of what kind it is
        one = header[rng.choice(names)]
        part = rng.randrange(3)
        if part == 0:
            one["dtype"] = rng.choice(("F64", "F16", "BF16", "I8", "I64", "BOOL", "F8_E4M3", "U16", "X", ""))
        elif part == 1:
            one["shape"] = [rng.choice(INTEGERS) for _ in range(rng.randrange(4))]
        else:
            one["data_offsets"] = [rng.choice((*INTEGERS, *one["data_offsets"])) for _ in range(2)]
    elif kind == 2:  # two tensors in one place
        first, second = rng.choice(names), rng.choice(names)
        header[first] = {**header[first], "data_offsets": header[second]["data_offsets"]}
    else:
        header = document(rng, header)
    text = json.dumps(header).encode()
    length = (
        len(text) if rng.randrange(8) else rng.choice((0, 1, len(text) - 1, len(text) + 1, 2**40, 2**63, 2**64 - 1))
    )
    if rng.randrange(8) == 0:
        rest = rest[: rng.randrange(len(rest) + 1)]
    return struct.pack("<Q", length % 2**64) + text + rest
