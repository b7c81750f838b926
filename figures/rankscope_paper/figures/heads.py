"""Fig. 14, 16: angles between the rows of W_Q in the first encoder layer, and its ranks, by number of heads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.sweep import read_sweep_report
from rankscope.numerics import angle_matrix
from rankscope.plots import angle_maps, ranks_by_heads
from rankscope.plots.labels import short_names
from rankscope_paper.figures.embedding import angle_frame, mean_angle
from rankscope_paper.figures.recipe import Drawn, Recipe, Settings, carried, listed, read_parquet
from rankscope_paper.figures.sweeps import command, draw_mean_ranks, measured_on

SCHEMA = "rankscope/head-angles@1"
DATA = "head_angles.parquet"
MAKE = "rankscope sweep heads --out DIR && rankscope figures 14 --data DIR"
LEAST = 45.0
"""Angle in degrees that is drawn darkest: rows of different heads are nearly at right angles."""
COLUMNS = ("schema", "model", "heads", "row", "tenths", "about")
"""Of the compact table: one line per row of W_Q, with its angles to the rows after it in tenths of a degree."""


@partial(
    Recipe,
    id="14",
    title="Angles between rows of W_Q by number of heads",
    shows="h blocks on the diagonal: rows of one head are alike",
    takes=("model", "data"),
    most_models=6,
    data=(DATA,),
    make=MAKE,
)
def fig14(settings: Settings) -> Drawn:
    """Draw the sweep, models or saved angles that the settings name, or the carried angles."""
    if settings.models:
        checkpoints = settings.checkpoints()
        maps, about = _measured(checkpoints), f"Measured on {listed(checkpoints)}."
    elif settings.data is not None and settings.data.suffix != ".parquet":
        maps, about = _swept(settings.data)
    else:
        maps, about = read_angles(settings.data or carried(DATA, MAKE))
    inside = []
    for title, (widths, angles) in maps.items():
        same = _same_head(widths)
        within, across = mean_angle(np.where(same, angles, np.nan)), mean_angle(np.where(same, np.nan, angles))
        inside.append(f"{title} {np.rad2deg(within):.0f}° and {np.rad2deg(across):.0f}°")
    caption = (
        "Angles between all pairs of rows of W_Q in the first encoder layer; the rows of one head stand together, "
        f"so that heads are blocks on the diagonal; angles below {LEAST:g}° look alike. "
        f"Mean angle within a head and across heads: {'; '.join(inside)}. "
        f"{about}"
    )
    plain = {title: angles for title, (_, angles) in maps.items()}
    figure = angle_maps(plain, axis="row of $W_Q$", columns=2 if len(maps) < 6 else 3, least=LEAST)
    even = all(len(set(widths)) == 1 for widths, _ in maps.values())  # the table has no place for widths that differ
    return Drawn(figure, angle_frame(plain, "model"), caption, compact=compact_angles(maps, about) if even else None)


AngleMaps = dict[str, tuple[tuple[int, ...], np.ndarray]]
"""Title → widths of the heads, and angles between the rows of W_Q."""


@partial(
    Recipe,
    id="16",
    title="Rank of W_Q and its heads by number of heads",
    shows="more heads give W_Q a higher rank, and each head a lower one; angles of three heads",
    takes=("model", "data"),
    data=("heads.json",),
    make=command("heads"),
    names=lambda settings: ("",) if settings.models else ("", "angles"),
)
def fig16(settings: Settings) -> tuple[Drawn, ...]:
    """Draw ranks against heads, and, where angles are there, those of the model with the fewest heads."""
    drawn = draw_mean_ranks(
        settings,
        name="heads.json",
        make=command("heads"),
        field="model.num_heads",
        what="the number of heads h (left) and of one head's rows (right, thin black: the width of a head)",
        plot=ranks_by_heads,
        by_head=True,
    )
    if settings.models or (settings.data is not None and not settings.data.is_dir()):
        return (drawn,)
    maps, about = read_angles(carried(DATA, MAKE)) if settings.data is None else _swept(settings.data)
    title = min(maps, key=lambda one: len(maps[one][0]))
    plain = {title: maps[title][1]}
    caption = f"Angles between all pairs of rows of W_Q in the first encoder layer of the model with {title}. {about}"
    figure = angle_maps(plain, axis="row of $W_Q$", columns=1, least=LEAST)
    return drawn, Drawn(figure, angle_frame(plain, "model"), caption, name="angles")


def compact_angles(maps: AngleMaps, about: str) -> pd.DataFrame:
    """Angles as whole tenths of a degree, each pair once: what `read_angles` reads."""
    rows = []
    for title, (widths, angles) in maps.items():
        tenths = np.rint(np.rad2deg(angles) * 10)
        if np.isnan(tenths).any():
            raise DataError(f"{title}: a row of W_Q is zero and has no direction: nothing to save.")
        whole = tenths.astype(np.uint16)
        rows += [(SCHEMA, title, len(widths), i, whole[i, i + 1 :], about) for i in range(len(whole))]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def read_angles(path: Path) -> tuple[AngleMaps, str]:
    """Read what `compact_angles` made and was written as Parquet: model → widths and angles, and the caption's end.

    Raises:
        DataError: it is no such table.
    """
    file = codec.find(path, "fig14.parquet")
    frame = read_parquet(file, "a sweep over heads, or angles saved by figure 14")
    if list(frame.columns) != list(COLUMNS) or set(frame["schema"]) != {SCHEMA}:
        found = frame["schema"].iloc[0] if "schema" in frame and len(frame) else "no schema"
        raise DataError(f"{file}: expected a table of schema {SCHEMA!r}, got {found!r}.")
    maps: AngleMaps = {}
    for title, part in frame.groupby("model", sort=False):
        angles = np.zeros((len(part), len(part)))
        for row, tenths in zip(part["row"], part["tenths"], strict=True):
            angles[row, row + 1 :] = np.deg2rad(np.asarray(tenths) / 10)
        heads = int(part["heads"].iloc[0])
        maps[str(title)] = ((len(part) // heads,) * heads, angles + angles.T)
    return maps, str(frame["about"].iloc[0])


def _swept(path: Path) -> tuple[AngleMaps, str]:
    report = read_sweep_report(path)
    folder = path if path.is_dir() else path.parent
    done = sorted(report.done, key=lambda row: int(row.config["model"]["num_heads"]))
    if not done:
        raise DataError(f"{path}: no point of sweep {report.name!r} is done: let `rankscope sweep` finish.")
    absent = next((row.folder for row in done if not (folder / row.folder).is_dir()), None)
    if absent is not None:
        raise DataError(
            f"{folder} has no checkpoint {absent}: figure 14 needs the folder that `rankscope sweep` wrote."
        )
    found: AngleMaps = {}
    for row in done:
        widths, angles = _angles(open_checkpoint(folder / row.folder))
        title = f"h = {len(widths)}"
        found[title if title not in found else f"{title}, {row.point}"] = (widths, angles)
    return found, measured_on(report)


def _measured(checkpoints: list[Checkpoint]) -> AngleMaps:
    found: AngleMaps = {}
    for checkpoint, name in zip(checkpoints, short_names([one.source for one in checkpoints]), strict=True):
        widths, angles = _angles(checkpoint)
        found[f"{name}, h = {len(widths)}"] = (widths, angles)
    return found


def _angles(checkpoint: Checkpoint) -> tuple[tuple[int, ...], np.ndarray]:
    first = ("encoder", "self.q", 0)
    sites = [site for site in checkpoint.sites("all") if (site.stack, site.role, site.layer) == first]
    if not sites:
        raise DataError(f"{checkpoint.source} has no encoder with a W_Q: figure 14 needs one.")
    matrix = checkpoint.matrix(sites[0])
    dense = matrix if isinstance(matrix, torch.Tensor) else matrix.dense()
    return sites[0].head_widths or (len(dense),), angle_matrix(dense).numpy()


def _same_head(widths: tuple[int, ...]) -> np.ndarray:
    head = np.repeat(np.arange(len(widths)), widths)
    return np.asarray(head[:, None] == head[None, :])
