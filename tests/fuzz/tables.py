"""Tables of series with cells, names and types that few programs expect, in four formats."""

from __future__ import annotations

import io
import json
import random
from typing import Any

from tests.fuzz import mutators

NAMES = (
    "item_id",
    "timestamp",
    "target",
    "value",
    "",
    "Unnamed: 0",
    "id",
    "date",
    "y",
    "freq",
    "start",
    "a",
    "\ud800",
    "x,y",
    'q"',
    "ts\n",
)
DATES = (
    "2024-01-01",
    "2024-01-02",
    "2024-02-30",
    "01/02/2024",
    "13/02/2024",
    "2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00+02:00",
    "1500-01-01",
    "9999-12-31",
    "2024",
    "20240101",
    "1704067200",
    "1e18",
    "",
    "no date",
    "2024-W05",
    "2024Q1",
    "Jan 2024",
)


def number(rng: random.Random) -> Any:
    """What may stand in a column of numbers."""
    return rng.choice(
        (
            1,
            2.5,
            -3,
            0,
            None,
            "",
            "x",
            "1_000",
            "1,5",
            " 7 ",
            float("nan"),
            float("inf"),
            1e308,
            1e309,
            2**63,
            True,
            "nan",
            "NaN",
        )
    )


def rows(rng: random.Random) -> tuple[list[str], list[list[Any]]]:
    """Names of columns and cells, near one of the three layouts."""
    count = rng.choice((0, 1, 2, 5, 30))
    layout = rng.randrange(3)
    if layout == 0:
        names, cells = (
            ["item_id", "timestamp", "target"],
            [
                [rng.choice(("a", "b", 1, None)), rng.choice(DATES[:2] if rng.randrange(2) else DATES), number(rng)]
                for _ in range(count)
            ],
        )
        for place, row in enumerate(cells):
            if rng.randrange(3):
                row[1] = f"2024-01-{1 + place % 28:02d}"
    elif layout == 1:
        names = ["date", *(f"s{one}" for one in range(rng.choice((1, 2, 8))))]
        cells = [[f"2024-01-{1 + at % 28:02d}", *(number(rng) for _ in names[1:])] for at in range(count)]
    else:
        names = ["item_id", "start", "freq", "target"]
        freqs = ("D", "h", "M", "W", "xyz", "", None, 7)
        cells = [
            [f"i{at % 7}", rng.choice(DATES), rng.choice(freqs), [number(rng) for _ in range(rng.choice((0, 1, 9)))]]
            for at in range(count)
        ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        names[rng.randrange(len(names))] = rng.choice(NAMES)
    for _ in range(rng.choice((0, 0, 1, 3))):
        if cells:
            cells[rng.randrange(len(cells))][rng.randrange(len(names))] = mutators.scalar(rng)
    return names, cells


def csv_file(rng: random.Random, _: Any) -> bytes:
    """A CSV file; of some the quotes, the widths of rows or the bytes are damaged."""
    names, cells = rows(rng)
    lines = [names, *cells]
    mark = rng.choice((",", ",", ",", ";", "\t"))
    text = rng.choice(("\n", "\n", "\r\n", "\r")).join(mark.join(_cell(rng, one) for one in row) for row in lines)
    made = text.encode(rng.choice(("utf-8", "utf-8", "utf-16", "latin-1")), "replace")
    return mutators.data(rng, made) if rng.randrange(3) == 0 else made


def _cell(rng: random.Random, value: Any) -> str:
    text = (
        ""
        if value is None
        else str(value)[:20_000]
        if not isinstance(value, int)
        else f"{value:d}"[:20_000]
        if abs(value) < 10**300
        else "9" * 400
    )
    return '"' + text.replace('"', '""') + '"' if rng.randrange(5) == 0 else text.replace("\n", " ")


def jsonl_file(rng: random.Random, _: Any) -> bytes:
    """JSON lines, of some a line or the bytes damaged."""
    names, cells = rows(rng)
    lines = []
    for row in cells:
        one: Any = dict(zip(names, row, strict=True))
        if rng.randrange(6) == 0:
            one = mutators.document(rng, one)
        if rng.randrange(12) == 0:
            lines.append(mutators.json_file(rng, one).replace(b"\n", b" "))
        else:
            lines.append(_dumped(one))
    made = b"\n".join(lines)
    return mutators.data(rng, made) if rng.randrange(4) == 0 else made


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except ValueError:  # of more digits than Python writes
        return b'{"target": [' + b"9" * 5_000 + b"]}"


def arrow_table(rng: random.Random) -> Any:
    """A table with columns of any Arrow type."""
    import pyarrow as pa

    names, cells = rows(rng)
    columns = list(zip(*cells, strict=True)) or [()] * len(names)
    arrays = []
    for column in columns:
        kind = rng.choice(TYPES) if rng.randrange(3) == 0 else None
        try:
            arrays.append(pa.array(list(column), type=None if kind is None else getattr(pa, kind[0])(*kind[1](pa))))
        except (pa.ArrowException, ValueError, TypeError, OverflowError, UnicodeError):
            arrays.append(
                pa.array([None if one is None else str(one)[:99].encode("utf-8", "replace").decode() for one in column])
            )
    return pa.table(arrays, names=[name.encode("utf-8", "replace").decode() for name in names])


TYPES: tuple[tuple[str, Any], ...] = (
    ("int8", lambda pa: ()),
    ("uint64", lambda pa: ()),
    ("float16", lambda pa: ()),
    ("float64", lambda pa: ()),
    ("bool_", lambda pa: ()),
    ("string", lambda pa: ()),
    ("large_string", lambda pa: ()),
    ("binary", lambda pa: ()),
    ("date32", lambda pa: ()),
    ("timestamp", lambda pa: ("ns",)),
    ("timestamp", lambda pa: ("s", "Europe/Berlin")),
    ("duration", lambda pa: ("s",)),
    ("decimal128", lambda pa: (38, 2)),
    ("list_", lambda pa: (pa.float32(),)),
    ("list_", lambda pa: (pa.list_(pa.int64()),)),
    ("dictionary", lambda pa: (pa.int32(), pa.string())),
    ("null", lambda pa: ()),
)


def arrow_file(rng: random.Random, _: Any) -> bytes:
    """An Arrow file or stream; most are damaged."""
    import pyarrow as pa

    table, sink = arrow_table(rng), io.BytesIO()
    opened = rng.choice((pa.ipc.new_file, pa.ipc.new_stream))
    with opened(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=rng.choice((None, "lz4", "zstd")))
    ) as out:
        out.write_table(table, max_chunksize=rng.choice((1, 1_000)))
    made = sink.getvalue()
    return mutators.data(rng, made) if rng.randrange(4) else made


def parquet_file(rng: random.Random, _: Any) -> bytes:
    """A Parquet file; most are damaged, half of these in the metadata at the end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, sink = arrow_table(rng), io.BytesIO()
    try:
        pq.write_table(
            table, sink, compression=rng.choice(("none", "snappy", "zstd")), row_group_size=rng.choice((1, 1_000))
        )
    except (pa.ArrowException, NotImplementedError):
        sink = io.BytesIO()
        pq.write_table(pa.table({"target": [1.0, 2.0]}), sink)
    made = sink.getvalue()
    return damaged(rng, made, "parquet") if rng.randrange(4) else made


def damaged(rng: random.Random, made: bytes, ending: str) -> bytes:
    """A damaged file; half of those in Parquet in the metadata at the end."""
    if ending != "parquet" or rng.randrange(2):
        return mutators.data(rng, made)
    tail = min(len(made), rng.choice((64, 512, 4_096)))
    return made[:-tail] + mutators.data(rng, made[-tail:])


def sales_file(rng: random.Random, ending: str, layout: str, length: int, odd: bool = False) -> bytes:
    """Two monthly series of two targets with a covariate and a static feature, in a form that fev reads.

    Args:
        rng: where changes come from.
        ending: of the format, parquet or arrow.
        layout: long, or list.
        length: of the series.
        odd: change cells, types and names.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    months = pd.date_range("2020-01-01", periods=length, freq="MS").tolist()
    targets = [float(50 + at * 7 % 12) for at in range(length)]
    columns: dict[str, list[Any]] = {
        "timestamp": months,
        "target": targets,
        "returns": [value / 3 for value in targets],
        "event": [at % 3 for at in range(length)],
    }
    items: list[dict[str, Any]] = [{"id": item, **{key: list(one) for key, one in columns.items()}} for item in "ab"]
    for _ in range(rng.choice((1, 1, 2, 4)) if odd else 0):
        _change_series(rng, rng.choice(items))
    static: list[Any] = [rng.choice(("x", "y", None, 7)) if odd and not rng.randrange(4) else item for item in "xy"]
    if layout == "long":
        sizes = [max(len(item[name]) for name in columns) for item in items]
        data: dict[str, list[Any]] = {
            "id": [item["id"] for item, size in zip(items, sizes, strict=True) for _ in range(size)],
            "shop": [shop for shop, size in zip(static, sizes, strict=True) for _ in range(size)],
        }
        for name in columns:
            data[name] = [
                item[name][at] if at < len(item[name]) else None
                for item, size in zip(items, sizes, strict=True)
                for at in range(size)
            ]
    else:
        data = {"id": [item["id"] for item in items], "shop": static}
        data |= {name: [item[name] for item in items] for name in columns}
    names = [rng.choice((*NAMES, *data)) if odd and not rng.randrange(30) else name for name in data]
    arrays = [_array(values, _type(rng) if odd and not rng.randrange(12) else None) for values in data.values()]
    made, sink = pa.table(arrays, names=[name.encode("utf-8", "replace").decode() for name in names]), io.BytesIO()
    if ending == "parquet":
        try:
            pq.write_table(made, sink, row_group_size=rng.choice((1, 1_000)) if odd else 1_000)
        except (pa.ArrowException, NotImplementedError):
            return sink.getvalue()
    else:
        with pa.ipc.new_stream(sink, made.schema) as out:
            out.write_table(made, max_chunksize=rng.choice((1, 1_000)) if odd else 1_000)
    return sink.getvalue()


def _change_series(rng: random.Random, item: dict[str, Any]) -> None:
    """Change a series in place: its id, its length, a value, or a run of values."""
    name = rng.choice([key for key in item if key != "id"])
    cells, kind = item[name], rng.randrange(7)
    if kind == 0:
        item["id"] = rng.choice(("a", "b", "", None, "x" * 9_999))
    elif kind == 1:
        size = rng.choice((0, 1, 2, 3, 5, 8))
        for key in item:
            if key != "id" and (key == name or rng.randrange(4)):
                item[key] = item[key][:size]
    elif kind == 2 and cells:
        item[name] = [rng.choice((cells[0], None, 0.0))] * len(cells)
    elif kind == 3 and name == "timestamp" and cells:
        cells[rng.randrange(len(cells))] = rng.choice((None, cells[0], cells[-1]))
    elif kind == 4:
        cells.reverse()
    elif cells and name != "timestamp":
        for _ in range(rng.choice((1, 1, 9))):
            cells[rng.randrange(len(cells))] = number(rng)


def _type(rng: random.Random) -> Any:
    import pyarrow as pa

    name, words = rng.choice(TYPES)
    return getattr(pa, name)(*words(pa))


def _array(values: list[Any], kind: Any) -> Any:
    """An array of a type, of each list where values are lists; of text where they do not fit, without numbers else."""
    import pyarrow as pa

    listed = any(isinstance(one, list) for one in values)
    for one in (kind, None, pa.string()):
        try:
            if one is pa.string() or one == pa.string():
                texts = [[str(cell) for cell in row] if isinstance(row, list) else str(row) for row in values]
                return pa.array(texts, type=pa.list_(one) if listed else one)
            return pa.array(values, type=None if one is None else pa.list_(one) if listed else one)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, UnicodeError):
            continue
    raise AssertionError("text fits everything")


def gift_file(rng: random.Random) -> bytes:
    """Arrow data of GIFT-Eval, with rows and types that do not belong there."""
    import pandas as pd
    import pyarrow as pa

    rows: dict[str, list[Any]] = {"item_id": ["a", "b"], "start": [pd.Timestamp("2020-01-01")] * 2, "freq": ["M", "M"]}
    rows["target"] = [[float(at * 7 % 12) for at in range(60)] for _ in range(2)]
    if rng.randrange(3) == 0:
        rows["target"] = [[list(one) for _ in range(rng.choice((0, 1, 7)))] for one in rows["target"]]
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(tuple(rows))
        at, kind = rng.randrange(2), rng.randrange(5)
        if kind == 0:
            rows[name][at] = None
        elif kind == 1 and name == "target":
            cells = rows[name][at] or []
            for place in range(len(cells)):
                if rng.randrange(8) == 0:
                    cells[place] = number(rng)
        elif kind == 2 and name == "target":
            rows[name][at] = (rows[name][at] or [])[: rng.choice((0, 1, 11, 12, 13))]
        elif name == "freq":
            rows[name] = [rng.choice(FREQS)] * 2
        elif name == "start":
            dates = pd.to_datetime(["1677-10-01", "2262-04-11", "1970-01-01"])
            rows[name][at] = rng.choice(dates.tolist())
        elif name == "item_id":
            rows[name][at] = rng.choice(("", "a", "\x1b[31m", "x" * 9_999))
    arrays = [_array(values, _type(rng) if not rng.randrange(8) else None) for values in rows.values()]
    table = pa.table(arrays, names=[rng.choice(NAMES[:6]) if not rng.randrange(25) else name for name in rows])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=rng.choice((1, 1_000)))
    return sink.getvalue()


FREQS = ("D", "B", "QE", "Q-DEC", "A-DEC", "YE", "5T", "0D", "-1D", "9999999D", "1000000000Y", "h", "xyz", "", "C")
