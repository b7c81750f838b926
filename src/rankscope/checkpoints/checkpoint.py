"""A checkpoint on disk: its config, its family, and its tensors one at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints.sources import locate
from rankscope.checkpoints.tensors import WEIGHT_DTYPES, TensorInfo, read_index, read_json, read_tensor
from rankscope.checkpoints.validation import check_agreement, check_storage, expected_shapes, factored, find_prefix
from rankscope.choices import Storage
from rankscope.errors import CheckpointError, OptionError, RankscopeError, one_line
from rankscope.families import (
    Factored,
    Family,
    Layout,
    Site,
    family_of,
    is_known,
    read_layouts,
    select_sites,
)
from rankscope.families.generic import guess_family
from rankscope.families.weight_layout import (
    LayoutName,
    layout_name,
    linear_layers,
    read_storage,
    scale_name,
    scaled_weight,
)

if TYPE_CHECKING:
    from rankscope.numerics.factored import FactoredMatrix


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model's weights on disk; nothing is read but headers until a tensor is asked for.

    Attributes:
        source: the name the checkpoint was opened by.
        folder: where its files are.
        config: the content of its ``config.json``.
        family: its model family.
        index: every stored tensor.
        layouts: layout of every module that is not dense; empty for a dense checkpoint.
        prefix: what stands before the family's names of tensors, as in ``bert.encoder…``.
        guesses: of a model that no family describes, what was taken for what; see `rankscope.families.generic`.
    """

    source: str
    folder: Path
    config: dict[str, Any] = field(repr=False)
    family: Family = field(repr=False)
    index: Mapping[str, TensorInfo] = field(repr=False)
    layouts: Mapping[str, Layout] = field(repr=False)
    prefix: str = ""
    guesses: tuple[str, ...] = ()

    def sites(self, select: Sequence[str] | str | None = None) -> tuple[Site, ...]:
        """Sites that the words select, attention by default; see `rankscope.families.select_sites`."""
        found = self.family.sites(self.config)
        if self.prefix:
            found = tuple(replace(site, name=self.prefix + site.name) for site in found)
        return select_sites(found, select)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where it is, not what was read of it."""
        return _open_again, (self.source, self.folder)

    @property
    def storage(self) -> Storage:
        """In which numbers linear layers are stored."""
        return read_storage(self.config.get("rankscope"))

    @cached_property
    def dtype(self) -> torch.dtype:
        """Number format of the largest tensor that is stored in floating point, scales apart."""
        floats = [info for name, info in self.index.items() if info.dtype in WEIGHT_DTYPES and not self.is_scale(name)]
        return max(floats, key=lambda info: info.bytes).dtype if floats else torch.float32

    def is_scale(self, name: str) -> bool:
        """Return True if a tensor holds the scales of another one, which is stored in whole numbers."""
        return scaled_weight(name) in self.index

    @cached_property
    def factored(self) -> dict[str, Factored]:
        """Those modules that are stored as two thin matrices."""
        return factored(self.layouts)

    def layout(self, site: Site) -> LayoutName:
        """Layout of the stored matrix of a site."""
        return layout_name(site, self.layouts)

    def shape(self, site: Site) -> tuple[int, int]:
        """Shape (d_out, d_in) of the matrix of a site, whichever way it is stored."""
        layout = self.factored.get(site.module)
        if layout is None:
            return site.shape(self._info(site.name).shape)
        up, down = (self._info(f"{site.module}.{part}.weight") for part in ("up", "down"))
        across = layout.heads if layout.heads and layout.axis == 1 else 1
        return up.shape[0], down.shape[1] * across

    def stored(self, site: Site) -> int:
        """Numbers stored of the matrix of a site."""
        layout = self.factored.get(site.module)
        return prod(self.shape(site)) if layout is None else layout.parameters(*self.shape(site))

    def tensor(self, name: str) -> Tensor:
        """Read one tensor in its stored number format; in float32, and exact, where it is whole numbers and scales.

        Raises:
            CheckpointError: the tensor is missing, unreadable, no float tensor, or holds NaN or Inf.
        """
        info, scale = self._info(name), self.index.get(scale_name(name))
        rounded = info.dtype == torch.int8 and scale is not None
        if info.dtype not in WEIGHT_DTYPES and not rounded:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in WEIGHT_DTYPES)
            raise CheckpointError(
                f"{self.source}: tensor {name} is stored as {str(info.dtype).removeprefix('torch.')}, "
                f"rankscope reads {known}: save the model unquantised."
            )
        tensor = read_tensor(info)
        if rounded and scale is not None:
            from rankscope.numerics.quantise import Quantised

            tensor = Quantised(tensor, read_tensor(scale)).dense()
        if tensor.numel():
            # Extremes show NaN and Inf without the temporary copies of isfinite.
            low, high = tensor.aminmax()
            if not (torch.isfinite(low) and torch.isfinite(high)):
                raise CheckpointError(
                    f"{self.source}: tensor {name} holds NaN or Inf: the file is damaged or training "
                    "diverged; download it again or use an earlier save."
                )
        return tensor

    def raw(self, name: str) -> Tensor:
        """Read one tensor as it is stored, scales and whole numbers too, into memory of its own.

        Raises:
            CheckpointError: the tensor is missing or unreadable.
        """
        return read_tensor(self._info(name))

    def matrix(self, site: Site) -> Tensor | FactoredMatrix:
        """Read the matrix of a site: a tensor where it is stored dense, else its two factors.

        The factors of heads that have sketches of their own are put together to two, one of them block-diagonal.
        """
        layout = self.factored.get(site.module)
        if layout is None:
            return site.cut(self.tensor(site.name))
        from rankscope.numerics.factored import FactoredMatrix, joined_heads

        up, down = (self.tensor(f"{site.module}.{part}.weight") for part in ("up", "down"))
        return FactoredMatrix(up, down) if layout.heads is None else joined_heads(up, down, layout.heads, layout.axis)

    def module(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Build the module in evaluation mode (imports transformers).

        Raises:
            CheckpointError: the model's class refuses the config or the weights.
        """
        try:
            return self.family.build(self.folder, dtype)
        except (RankscopeError, MemoryError):
            raise
        except Exception as error:  # whatever the classes of transformers and chronos-forecasting raise
            raise CheckpointError(
                f"{self.source}: its class cannot be built from its config.json and weights "
                f"({one_line(error)[:240]}); use the config.json that was saved with the weights."
            ) from error

    @property
    def parameters(self) -> int:
        """Number of stored parameters; copies of a tied tensor count once, scales belong to the number format.

        Whole numbers are positions or counts of batches, but for int8 weights.
        """
        tied = self.family.tied_shapes(self.config)
        numbers = {name for name, info in self.index.items() if info.dtype in (*WEIGHT_DTYPES, torch.int8)}
        own = {name for name in numbers if name not in tied and not self.is_scale(name)}
        # A tensor that is stored only under the names of its copies counts once, too.
        lone = {self._info(name) for name in self.family.aliases if name not in self.index}
        return sum(prod(info.shape) for info in {*(self.index[name] for name in own), *lone})

    @property
    def bytes(self) -> int:
        """Stored size of all tensors in bytes."""
        return sum(info.bytes for info in self.index.values())

    def _info(self, name: str) -> TensorInfo:
        for known in (name, *self.family.aliases.get(name, ())):
            if known in self.index:
                return self.index[known]
        raise CheckpointError(f"{self.source}: there is no tensor {name!r} in this checkpoint.")


def open_checkpoint(model: str | Path | Checkpoint | None = None, *, revision: str | None = None) -> Checkpoint:
    """Open a checkpoint by bundled name, local folder or hub id; without a name the bundled default.

    Only ``config.json`` and safetensors headers are read. Pickles are refused and remote code never runs.

    Args:
        model: ``bundled`` or another bundled name, a folder, ``owner/name`` on the hub, or an open checkpoint, which
            is returned as it is.
        revision: branch, tag or commit of a hub model.

    Raises:
        CheckpointError: there is no such model, or it is unreadable, unsafe or inconsistent.
        FamilyError: the config describes no known family, and no attention was found by structure.
        OptionError: something else than a name, a folder or an open checkpoint.
    """
    if isinstance(model, Checkpoint):
        return model
    if not isinstance(model, str | os.PathLike | None):
        raise OptionError(
            f"a {type(model).__name__} is not a checkpoint: give a name, a folder, or what open_checkpoint returned."
        )
    source, folder = locate(model, revision)
    config = read_json(folder / "config.json")
    index: Mapping[str, TensorInfo] | None = None
    guesses: tuple[str, ...] = ()
    try:
        if is_known(config):
            family = family_of(config)
        else:
            index = read_index(folder)
            family, guesses = guess_family(config, {name: info.shape for name, info in index.items()})
        block = config.get("rankscope")
        layouts = read_layouts(block)
        expected = expected_shapes(config, family, layouts)
        storage = read_storage(block)
    except RankscopeError as error:
        raise type(error)(f"{source}: {error}") from error
    index = read_index(folder) if index is None else index
    try:
        prefix = find_prefix(expected, family.prefixes, index)
        check_agreement(config, family, {prefix + name: shape for name, shape in expected.items()}, index, prefix)
        layers = linear_layers(family.sites(config), layouts, block)
        check_storage(storage, {prefix + layer for layer in layers}, index)
    except CheckpointError as error:
        raise CheckpointError(f"{source}: {error}") from error
    return Checkpoint(source, folder, config, family, index, layouts, prefix, guesses)


def _open_again(source: str, folder: Path) -> Checkpoint:
    return replace(open_checkpoint(folder), source=source)


@dataclass(frozen=True)
class Description:
    """Description of a model by its ``config.json``; its weights may be elsewhere, or not exist yet.

    Attributes:
        source: the name the model was found by.
        folder: where its files are.
        config: the content of its ``config.json``.
        family: its model family.
    """

    source: str
    folder: Path
    config: dict[str, Any] = field(repr=False)
    family: Family = field(repr=False)


def describe(model: str | Path | None = None, *, revision: str | None = None) -> Description:
    """Read the config of a model by bundled name, local folder or hub id; no weights are read or downloaded.

    Raises:
        CheckpointError: there is no such model, or its config is unreadable.
        FamilyError: the config describes no known family.
    """
    source, folder = locate(model, revision, config_only=True)
    config = read_json(folder / "config.json")
    try:
        family = family_of(config)
        family.expected_shapes(config)
    except RankscopeError as error:
        raise type(error)(f"{source}: {error}") from error
    return Description(source, folder, config, family)
