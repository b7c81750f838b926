"""A table's training, validation and test rows on the scale of training, and windows without overlap."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError
from rankscope_lab.blocks import patches
from rankscope_lab.data.table import VariableTable
from rankscope_lab.data.windows import MONTHS, forecast_data


@dataclass(frozen=True)
class ScaledParts:
    """Rows of each part in time order; every variable has mean 0 and standard deviation 1 over the training rows.

    Attributes:
        name: of the table.
        columns: the variables.
        train: 8640 rows of ETTh1.
        validation: the 2880 rows after them.
        test: the 2880 rows after those.
    """

    name: str
    columns: tuple[str, ...]
    train: Float[Tensor, "time variables"]
    validation: Float[Tensor, "rows variables"]
    test: Float[Tensor, "steps variables"]

    def to(self, device: str) -> ScaledParts:
        """The same on another device."""
        moved = (part.to(device) for part in (self.train, self.validation, self.test))
        return ScaledParts(self.name, self.columns, *moved)


def scaled_parts(table: VariableTable) -> ScaledParts:
    """Split a table 12/4/4 months (ETT) or 70/10/20 (any other) and scale it.

    Raises:
        DataError: the table is too short for the split.
    """
    data = forecast_data(table, MONTHS, 1, 1)
    return ScaledParts(table.name, table.columns, data.train.values, data.validation.values, data.test.values)


def tiles(
    values: Float[Tensor, "time variables"], window: int, offset: int = 0, what: str = "the part"
) -> Float[Tensor, "windows window"]:
    """Windows of each variable side by side from ``offset`` on, variable by variable; the rest at the end is left out.

    Raises:
        DataError: fewer rows than one window.
    """
    if len(values) - offset < window:
        raise DataError(
            f"{what} has {len(values):,} rows, one window takes {offset + window:,}: give more data, or a shorter "
            "window."
        )
    return patches(values[None, offset:], window, window).flatten(0, 1)
