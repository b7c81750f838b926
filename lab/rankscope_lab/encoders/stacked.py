"""Batched training of several seeds with stacked parameters.

A small model leaves a GPU idle between its many small kernels; ``torch.func.vmap`` over stacked parameters turns S of
them into one of S times the work. Each seed keeps its own data, its own order of batches, its own gradient norm and its
own state of the optimiser (AdamW works number by number), so a seed's run is what it would be alone, up to the random
numbers of dropout and the last digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from rankscope.errors import OptionError
from rankscope_lab.blocks.attention import MultiHeadAttention, scaled_dot_product
from rankscope_lab.data.channels import LENGTH
from rankscope_lab.encoders.data import Part, RunData
from rankscope_lab.encoders.models import AuditModel, build
from rankscope_lab.encoders.run_spec import Point, RunSpec
from rankscope_lab.encoders.training import (
    BATCH,
    CLIP,
    Begun,
    ComputeOptions,
    Trained,
    finite,
    fresh,
    kept_points,
    learning_rate,
    loss_of,
    optimiser,
    read_begun,
    score,
    validated,
)
from rankscope_lab.runs import check_stack, random_tensors, restore_random, restore_stack, restoring, stack_tensors

Stack = dict[str, Tensor]
"""Parameter name → seeds × its shape."""


def stackable(specs: Sequence[RunSpec]) -> bool:
    """Return True if runs differ in nothing but their seed."""
    return len({replace(spec, seed=0) for spec in specs}) == 1


def train_stacked(
    specs: Sequence[RunSpec],
    data: Sequence[RunData],
    how: ComputeOptions,
    *,
    snapshots: Sequence[Path] | None = None,
    progress: Callable[[int], None] = lambda epochs: None,
) -> list[Trained]:
    """Train runs that differ in their seed only, all at once.

    Args:
        specs: which.
        data: of each; parts have equal sizes.
        how: device, precision; compiled functions for the CPU are not used.
        snapshots: a file per run that its state is kept in after each validation; where all find one there, of the
            same epoch, the stack goes on from it.
        progress: called with the number of epochs done since the last call.

    Raises:
        OptionError: the runs differ in more than their seed, or have come differently far.
    """
    if not stackable(specs):
        raise OptionError("only runs that differ in nothing but their seed can be trained in one stack.")
    began = time.perf_counter()
    made = [fresh(spec) for spec in specs]
    stack, _ = stack_module_state([model.to(how.device) for model, _ in made])
    step = _Step(specs[0], stack, how)
    inputs = torch.stack([one.train.inputs for one in data]).to(how.device)
    targets = torch.stack([one.train.targets for one in data]).to(how.device)
    held = [one.validation.to(how.device) for one in data]
    points: list[list[Point]] = [[] for _ in specs]
    models, generators = [model for model, _ in made], [order for _, order in made]
    begun = _begun(specs, data, how, snapshots or ())
    last = max(how.last(specs[0]), begun[0].epoch if begun else 0)
    if begun:
        for path, one, order in zip(snapshots or (), begun, generators, strict=True):
            with restoring(path):
                check_stack(one.tensors, stack)
                restore_random(one.tensors, order)
        restore_stack([one.tensors for one in begun], stack, step.adam)
        points = [kept_points(one.points, last) for one in begun]
        _unstack(models, stack)
        progress(begun[0].epoch)
    before = [one.seconds for one in begun] or [0.0] * len(specs)

    def seconds() -> list[float]:
        return [one + (time.perf_counter() - began) / len(specs) for one in before]

    for epoch in range(begun[0].epoch + 1 if begun else 1, last + 1):
        orders = torch.stack([torch.randperm(inputs.shape[1], generator=order) for order in generators])
        step.rate(learning_rate(epoch - 1, specs[0].epochs))
        losses = torch.stack([step(inputs, targets, rows.to(how.device)) for rows in orders.split(BATCH, dim=1)])
        if validated(epoch, how.last(specs[0])):
            _validate(specs, models, stack, held, losses.mean(0).tolist(), epoch, points)
            if snapshots is not None:
                tensors = stack_tensors(models, stack, step.adam)
                for index, (path, spec, spent) in enumerate(zip(snapshots, specs, seconds(), strict=True)):
                    kept = tensors[index] | random_tensors(generators[index])
                    Begun(spec.id, epoch, tuple(points[index]), spent, how.precision, data[index].digest, kept).write(
                        path
                    )
        progress(1)
    _unstack(models, stack)
    return [
        Trained(model, _until_diverged(ours), spent, last)
        for model, ours, spent in zip(models, points, seconds(), strict=True)
    ]


def _begun(
    specs: Sequence[RunSpec], data: Sequence[RunData], how: ComputeOptions, snapshots: Sequence[Path]
) -> list[Begun]:
    """The states of the runs; none where none of them has begun."""
    found = [
        read_begun(path, spec, how.precision, one.digest)
        for path, spec, one in zip(snapshots, specs, data, strict=False)
    ]
    there = [one for one in found if one is not None]
    if len(there) not in (0, len(specs)) or len({one.epoch for one in there}) > 1:
        raise OptionError("only runs that have come equally far can go on in one stack.")
    return there


class _Step:
    """One step of all seeds; captured once as a CUDA graph for each batch size on a GPU."""

    def __init__(self, spec: RunSpec, stack: Stack, how: ComputeOptions) -> None:
        self.stack, self.how = stack, how
        for parameter in stack.values():
            parameter.grad = torch.zeros_like(parameter)
        self.adam = optimiser(list(stack.values()))
        cuda = how.device.type == "cuda"
        for group in self.adam.param_groups:
            group["lr"] = torch.zeros((), device=how.device) if cuda else 0.0
            group["capturable"] = cuda
        self.model = _skeleton(spec).to(how.device)
        self.gradients = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0), randomness="different")
        self.graphs: dict[int, _Graph] = {}

    def rate(self, value: float) -> None:
        """Set the learning rate."""
        for group in self.adam.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value

    def __call__(self, inputs: Tensor, targets: Tensor, rows: Int[Tensor, "seeds batch"]) -> Tensor:
        """Move every seed by its batch; the losses before, one per seed."""
        if self.how.device.type != "cuda":
            return self._move(inputs, targets, rows)
        size = rows.shape[1]
        if size not in self.graphs:
            self.graphs[size] = _Graph(lambda where: self._move(inputs, targets, where), rows)
        return self.graphs[size](rows)

    def _loss(self, parameters: Stack, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = loss_of(functional_call(self.model, parameters, (inputs,)), targets)
        penalty = _penalty(self.model, parameters)
        return loss if penalty is None else loss + penalty

    @torch.no_grad()  # the transform differentiates all the same; outside of it no step may record the one before
    def _move(self, inputs: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        seeds = torch.arange(len(rows), device=rows.device)[:, None]
        with self.how.products():
            found, losses = self.gradients(self.stack, inputs[seeds, rows], targets[seeds, rows])
        squares = torch.stack([one.flatten(1).square().sum(1) for one in found.values()]).sum(0)
        scale = (CLIP / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for name, parameter in self.stack.items():
            assert parameter.grad is not None
            parameter.grad.copy_(found[name] * scale.view(-1, *[1] * (parameter.ndim - 1)))
        self.adam.step()
        return losses


class _Graph:
    """A function of one tensor of fixed shape: three calls on a side stream, then replays of a CUDA graph."""

    def __init__(self, function: Callable[[Tensor], Tensor], example: Tensor) -> None:
        self.input = example.clone()
        self.output: Tensor | None = None
        self.function, self.graph, self.calls = function, torch.cuda.CUDAGraph(), 0

    def __call__(self, value: Tensor) -> Tensor:
        """Call it; every call, captured or not, is a step."""
        self.input.copy_(value)
        self.calls += 1
        if self.calls <= 3:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                output = self.function(self.input)
            torch.cuda.current_stream().wait_stream(stream)
            return output
        if self.output is None:
            with torch.cuda.graph(self.graph):
                self.output = self.function(self.input)
        self.graph.replay()
        return self.output.clone()


def _skeleton(spec: RunSpec) -> AuditModel:
    """A model to call with parameters that are not its own, attention in plain products: vmap knows their rules."""
    state = torch.get_rng_state()
    model = build(spec).train()
    torch.set_rng_state(state)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.attend = scaled_dot_product
    return model


def _penalty(model: AuditModel, parameters: Stack) -> Tensor | None:
    """The encoder's penalty at these parameters."""
    own = {name.removeprefix("encoder."): one for name, one in parameters.items() if name.startswith("encoder.")}
    with torch.nn.utils.stateless._reparametrize_module(model.encoder, own):
        return model.encoder.penalty()


@torch.no_grad()
def _unstack(models: Sequence[AuditModel], stack: Stack) -> None:
    """Copy each seed's parameters into its model."""
    for index, model in enumerate(models):
        for name, parameter in model.named_parameters():
            parameter.copy_(stack[name][index])


def _validate(
    specs: Sequence[RunSpec],
    models: Sequence[AuditModel],
    stack: Stack,
    held: Sequence[Part],
    losses: Sequence[float],
    epoch: int,
    points: list[list[Point]],
) -> None:
    _unstack(models, stack)
    for ours, spec, model, part, loss in zip(points, specs, models, held, losses, strict=True):
        ours.append(score(model, part, spec, epoch, loss))


def _until_diverged(points: list[Point]) -> list[Point]:
    """Up to the first point that is not finite: a run alone would have ended there."""
    for index, point in enumerate(points):
        if not finite(point):
            return points[: index + 1]
    return points


MEMORY_SHARE = 0.8
"""Of the free memory of a GPU, what a stack is sized for."""
_PER_SCORE, _PER_NUMBER, _SECOND_GRAPH = 16.2, 119.0, 1.4
"""Numbers alive at the peak of a step per attention weight of a head, and per number of a token, all three blocks
together: counted from the storages of one step of eleven settings; the last, smaller batch has a graph of its own."""


def stack_bytes(spec: RunSpec, seeds: int) -> int:
    """Peak memory of a step of so many seeds in a stack, in bytes.

    Attention weights are kept for the gradient, which ``vmap`` takes without recomputing them: tokens² of each head.
    """
    sequences, tokens = BATCH, LENGTH
    if spec.encoder == "ci":
        sequences *= spec.channels
    elif spec.encoder == "cat":
        tokens *= spec.channels
    per_sequence = _PER_SCORE * spec.heads * tokens**2 + _PER_NUMBER * tokens * spec.d_model
    return int(4 * seeds * sequences * per_sequence)


def stack_size(spec: RunSpec, free: int) -> int:
    """Seeds that fit into the free memory of a GPU, in bytes; at least one."""
    return max(1, int(MEMORY_SHARE * free / (_SECOND_GRAPH * stack_bytes(spec, 1))))
