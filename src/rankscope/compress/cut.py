"""A cut: what is made smaller by one decomposition, in one of several ways (`MatrixCut`, `PairCut`, `WidthCut`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from rankscope.compress.methods import Decomposition, Matrices
from rankscope.compress.plan import SitePlan, Spectrum
from rankscope.compress.taps import Tap
from rankscope.families import Layout, Site


@runtime_checkable
class Cut(Protocol):
    """Interface of a way to make matrices smaller, for preparing, planning, probing and writing.

    A cut divides its matrices into terms, each of which can be left out, in a fixed order. Several spectra share a cut
    where terms fall into groups of their own, such as heads.
    """

    @property
    def sites(self) -> tuple[Site, ...]:
        """Matrices that it replaces."""

    @property
    def module(self) -> str:
        """Name of the layer or the block, for messages."""

    def terms(self, matrices: Matrices) -> list[Decomposition]:
        """All terms, by spectrum."""

    def spectra(self, matrices: Matrices, terms: Sequence[Decomposition] | None = None) -> list[Spectrum]:
        """Worth and cost of every term; ``terms`` are those of `terms`, where they are known already."""

    def tap(self, terms: Sequence[Decomposition]) -> Tap:
        """The place where the gates of its terms act, for allocation ``sensitivity``."""

    def layouts(self, plans: Sequence[SitePlan], now: Mapping[str, Layout]) -> dict[str, Layout]:
        """Layouts of the modules that change, where ``now`` has what earlier cuts made of them."""

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the tensors that take the place of the old ones."""

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """Those tensors, in at least float32."""

    def renamed(self) -> Mapping[str, str]:
        """Old and new names of tensors whose values stay."""

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions that calibration showed, and the terms that they are to tell apart, where they are fewer."""
