"""Fig. 14: angles between the rows of W_Q in the first encoder layer, for models with more and more heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.sweep import read_sweep_report
from rankscope.numerics import row_angles
from rankscope.plots import angle_maps
from rankscope_paper.figures import _models
from rankscope_paper.figures._embedding import angle_frame, mean_angle
from rankscope_paper.figures._record import CARRIED, Drawn, Settings, carried
from rankscope_paper.figures._sweeps import HEADS, measured_on

SCHEMA = "rankscope/head-angles@1"
DATA = "head_angles.parquet"
MAKE = "rankscope sweep heads --out DIR && rankscope figures 14 --data DIR"
COLUMNS = ("schema", "model", "heads", "row", "tenths", "about")
"""Of the compact table: one line per row of W_Q, with its angles to the rows after it in tenths of a degree."""


def draw_head_angles(settings: Settings) -> tuple[Drawn, ...]:
    """Draw the sweep, models or saved angles that the settings name, or the carried angles."""
    if settings.models:
        checkpoints = _models.opened(settings, ())
        maps, about = _measured(checkpoints), f"Measured on {_models.listed(checkpoints)}."
    elif settings.data is not None and settings.data.suffix != ".parquet":
        maps, about = _swept(settings.data)
    else:
        maps, about = read_angles(settings.data if settings.data is not None else carried(DATA, MAKE))
    inside = []
    for title, (heads, angles) in maps.items():
        same = _same_head(len(angles), heads)
        within, across = mean_angle(np.where(same, angles, np.nan)), mean_angle(np.where(same, np.nan, angles))
        inside.append(f"{title} {np.rad2deg(within):.0f}° and {np.rad2deg(across):.0f}°")
    caption = (
        "Angles between all pairs of rows of W_Q in the first encoder layer; the rows of one head stand together, "
        f"so that heads are blocks on the diagonal. Mean angle within a head and across heads: {'; '.join(inside)}. "
        f"{about}"
    )
    plain = {title: angles for title, (_, angles) in maps.items()}
    figure = angle_maps(plain, axis="row of $W_Q$", columns=2 if len(maps) < 6 else 3)
    return (Drawn(figure, angle_frame(plain, "model"), caption, compact=compact_angles(maps, about)),)


def draw_ranks_by_heads(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 16: ranks against heads, and, where angles are there, those of the model with the fewest heads."""
    drawn = HEADS(settings)
    if settings.models:
        return drawn
    if settings.data is None and (CARRIED / DATA).is_file():
        maps, about = read_angles(CARRIED / DATA)
    elif settings.data is not None and settings.data.is_dir():
        maps, about = _swept(settings.data)
    else:
        return drawn
    title = min(maps, key=lambda one: maps[one][0])
    plain = {title: maps[title][1]}
    caption = f"Angles between all pairs of rows of W_Q in the first encoder layer of the model with {title}. {about}"
    figure = angle_maps(plain, axis="row of $W_Q$", columns=1)
    return (*drawn, Drawn(figure, angle_frame(plain, "model"), caption, name="angles"))


def compact_angles(maps: dict[str, tuple[int, np.ndarray]], about: str) -> pd.DataFrame:
    """Angles as whole tenths of a degree, each pair once: what `read_angles` reads."""
    rows = []
    for title, (heads, angles) in maps.items():
        tenths = np.rint(np.rad2deg(angles) * 10)
        if np.isnan(tenths).any():
            raise DataError(f"{title}: a row of W_Q is zero and has no direction: nothing to save.")
        whole = tenths.astype(np.uint16)
        rows += [(SCHEMA, title, heads, i, whole[i, i + 1 :], about) for i in range(len(whole))]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def read_angles(path: Path) -> tuple[dict[str, tuple[int, np.ndarray]], str]:
    """Read what `compact_angles` made and was written as Parquet: model → heads and angles, and the caption's end.

    Raises:
        DataError: it is no such table.
    """
    file = codec.find(path, "fig14.parquet")
    try:
        frame = pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is no Parquet file: name a sweep over heads, or angles saved by figure 14.") from error
    if list(frame.columns) != list(COLUMNS) or set(frame["schema"]) != {SCHEMA}:
        found = frame["schema"].iloc[0] if "schema" in frame and len(frame) else "no schema"
        raise DataError(f"{file}: expected a table of schema {SCHEMA!r}, got {found!r}.")
    maps = {}
    for title, part in frame.groupby("model", sort=False):
        angles = np.zeros((len(part), len(part)))
        for row, tenths in zip(part["row"], part["tenths"], strict=True):
            angles[row, row + 1 :] = np.deg2rad(np.asarray(tenths) / 10)
        maps[str(title)] = (int(part["heads"].iloc[0]), angles + angles.T)
    return maps, str(frame["about"].iloc[0])


def _swept(path: Path) -> tuple[dict[str, tuple[int, np.ndarray]], str]:
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
    found = {}
    for row in done:
        heads, angles = _angles(open_checkpoint(folder / row.folder))
        title = f"h = {heads}"
        found[title if title not in found else f"{title}, {row.point}"] = (heads, angles)
    return found, measured_on(report)


def _measured(checkpoints: list[Checkpoint]) -> dict[str, tuple[int, np.ndarray]]:
    found = {}
    for checkpoint in checkpoints:
        heads, angles = _angles(checkpoint)
        found[f"{checkpoint.source.rstrip('/').rsplit('/', 1)[-1]}, h = {heads}"] = (heads, angles)
    return found


def _angles(checkpoint: Checkpoint) -> tuple[int, np.ndarray]:
    sites = [site for site in checkpoint.sites(("q", "encoder", "self")) if site.layer == 0]
    if not sites:
        raise DataError(f"{checkpoint.source} has no encoder with a W_Q: figure 14 needs one.")
    matrix = checkpoint.matrix(sites[0])
    dense = matrix if isinstance(matrix, torch.Tensor) else matrix.dense()
    return sites[0].heads or 1, row_angles(dense).numpy()


def _same_head(rows: int, heads: int) -> np.ndarray:
    head = np.arange(rows) * heads // rows
    return np.asarray(head[:, None] == head[None, :])
