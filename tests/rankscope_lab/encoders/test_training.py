"""Training: schedule, scores, stops and resumes, and seeds in one stack against seeds by themselves."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rankscope.engine.pool import Engine
from rankscope.errors import DataError, OptionError, RankscopeError
from rankscope.io import codec
from rankscope_lab.data.channels import bin_edges, bin_of, channel_benchmark
from rankscope_lab.encoders import models, runs
from rankscope_lab.encoders import stacked as stacked_module
from rankscope_lab.encoders.data import etth1_data, run_data
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec, etth1_spec
from rankscope_lab.encoders.stacked import stack_bytes, stack_size, train_stacked
from rankscope_lab.encoders.training import (
    ComputeOptions,
    fresh,
    learning_rate,
    loss_of,
    score,
    train,
    validated,
)

SMALL = RunSpec("linear", series=48, epochs=4)


def weights(folder, spec):
    """Weights after the last epoch of a run's run."""
    return load_file(folder / f"{spec.id}.safetensors")


@pytest.fixture
def no_dropout(monkeypatch):
    monkeypatch.setattr(models, "DROPOUT", 0.0)


def test_the_learning_rate_is_a_cosine_over_epochs():
    assert learning_rate(0, 300) == pytest.approx(3e-4)
    assert learning_rate(150, 300) == pytest.approx((3e-4 + 3e-6) / 2)
    assert learning_rate(299, 300) == pytest.approx(3e-6, rel=0.01)
    assert [epoch for epoch in range(1, 301) if validated(epoch, 300)] == [1, *range(20, 301, 20)]


def test_the_loss_is_about_the_next_step():
    outputs = torch.randn(2, 5, 32)
    targets = torch.randint(0, 32, (2, 5))
    slow = [-float(outputs[b, t].log_softmax(-1)[targets[b, t + 1]]) for b in range(2) for t in range(4)]
    assert float(loss_of(outputs, targets)) == pytest.approx(sum(slow) / 8, rel=1e-5)
    numbers = torch.randn(2, 5)
    squared = [(float(outputs[b, t, 0]) - float(numbers[b, t + 1])) ** 2 for b in range(2) for t in range(4)]
    assert float(loss_of(outputs[..., :1], numbers)) == pytest.approx(sum(squared) / 8, rel=1e-5)


def test_splits_are_the_published_ones():
    data = run_data(RunSpec("linear"))
    assert (len(data.train.inputs), len(data.validation.inputs)) == (461, 51)
    every = torch.from_numpy(channel_benchmark(4, 512, 0).inputs)
    assert torch.equal(data.validation.inputs[:6], every[[265, 468, 450, 343, 510, 183]])
    assert torch.equal(data.train.inputs[:3], every[[172, 137, 235]])


def test_etth1_windows_bins_and_the_floor_of_repeating_the_bin(etth1):
    data = etth1_data(str(etth1))
    assert data.train.inputs.shape == (1505, 160, 7)
    assert data.validation.inputs.shape == (307, 160, 7)
    labels = data.validation.targets
    assert float((labels == 0).float().mean()) == pytest.approx(0.64, abs=0.005)
    assert float((labels[:, 1:] == labels[:, :-1]).float().mean()) == pytest.approx(0.827, abs=5e-4)
    table = np.loadtxt(etth1, delimiter=",", skiprows=1, usecols=range(1, 8))
    train = table[:12194]
    ot = ((table[:, 6] - train[:, 6].mean()) / (train[:, 6].std() + 1e-8)).astype(np.float32)
    bins = bin_of(ot, bin_edges(ot[:12194]))
    assert data.validation.targets[3].tolist() == bins[12194 + 24 : 12194 + 24 + 160].tolist()


def test_etth1_needs_its_table_and_enough_rows(tmp_path, etth1):
    with pytest.raises(OptionError, match="--data"):
        run_data(etth1_spec("linear", 0))
    short = tmp_path / "ETTh1.csv"
    short.write_text("\n".join(etth1.read_text().splitlines()[:1001]))
    with pytest.raises(DataError, match="1000 rows, its validation part 150"):
        run_data(etth1_spec("linear", 0), short)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, monkeypatch):
    monkeypatch.setattr("rankscope_lab.encoders.training.validated", lambda epoch, epochs: True)
    data = run_data(SMALL)
    whole = train(SMALL, data, ComputeOptions())
    train(SMALL, data, ComputeOptions(stop=2), snapshot=tmp_path / "state")
    torch.manual_seed(99)
    seen = []
    rest = train(SMALL, data, ComputeOptions(), snapshot=tmp_path / "state", progress=seen.append)
    assert seen == [2, 1, 1]
    assert rest.points == whole.points
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, rest.model.state_dict()[name]), name


def test_a_damaged_or_foreign_state_is_refused(tmp_path):
    path, data = tmp_path / "state", run_data(SMALL)
    path.write_bytes(b"half a file")
    with pytest.raises(DataError, match="cannot be read: delete it"):
        train(SMALL, data, ComputeOptions(stop=1), snapshot=path)
    path.unlink()
    train(SMALL, data, ComputeOptions(stop=1), snapshot=path)
    with pytest.raises(DataError, match=r"is of the run .*-s0, not of .*-s1"):
        train(replace(SMALL, seed=1), data, ComputeOptions(stop=1), snapshot=path)
    with pytest.raises(DataError, match="is of a run in float32, not in bfloat16"):
        train(SMALL, data, ComputeOptions(precision="bfloat16"), snapshot=path)


def test_training_learns_and_compiled_functions_change_nothing_that_matters(no_dropout):
    data = run_data(SMALL)
    plain = train(SMALL, data, ComputeOptions(kernels=False))
    fast = train(SMALL, data, ComputeOptions())
    assert plain.points[-1].train_loss < plain.points[0].train_loss - 0.1
    for one, other in zip(plain.points, fast.points, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", [RunSpec("linear-ortho", series=64), RunSpec("mlp", series=64), RunSpec("sum", series=64, objective="mse")]
)
def test_seeds_in_one_stack_are_what_each_is_by_itself(no_dropout, spec):
    specs = [replace(spec, seed=seed, epochs=2) for seed in range(2)]
    data = [run_data(one) for one in specs]
    together = train_stacked(specs, data, ComputeOptions())
    for one, tensors, stacked in zip(specs, data, together, strict=True):
        alone = train(one, tensors, ComputeOptions(kernels=False))
        for ours, theirs in zip(stacked.points, alone.points, strict=True):
            assert ours.loss == pytest.approx(theirs.loss, abs=2e-5)
            assert ours.train_loss == pytest.approx(theirs.train_loss, abs=2e-5)
        for name, weight in alone.model.state_dict().items():
            torch.testing.assert_close(stacked.model.state_dict()[name], weight, atol=2e-4, rtol=1e-2)


def test_steps_of_a_stack_do_not_remember_one_another(monkeypatch):
    """Nothing that outlives a step may hold on to its graph, or memory grows with every step."""
    kept = []
    moved = stacked_module._Step._move

    def watch(step, *parts):
        losses = moved(step, *parts)
        kept.extend([losses, *(parameter.grad for parameter in step.stack.values())])
        return losses

    monkeypatch.setattr(stacked_module._Step, "_move", watch)
    train_stacked([replace(SMALL, epochs=1)], [run_data(SMALL)], ComputeOptions())
    assert kept
    assert all(one.grad_fn is None and not one.requires_grad for one in kept)


def test_seeds_in_one_stack_do_not_share_dropout():
    specs = [replace(SMALL, epochs=1)] * 2
    first, second = train_stacked(specs, [run_data(SMALL)] * 2, ComputeOptions())
    assert first.points[0].train_loss != second.points[0].train_loss


def test_only_seeds_may_differ_in_a_stack():
    specs = [SMALL, replace(SMALL, encoder="mlp")]
    with pytest.raises(OptionError, match="nothing but their seed"):
        train_stacked(specs, [run_data(SMALL)] * 2, ComputeOptions())


def test_bfloat16_products_stay_near(no_dropout):
    data = run_data(SMALL)
    full, half = train(SMALL, data, ComputeOptions()), train(SMALL, data, ComputeOptions(precision="bfloat16"))
    assert half.points[-1].loss == pytest.approx(full.points[-1].loss, abs=0.01)
    assert all(weight.dtype == torch.float32 for weight in half.model.parameters())


def test_scores_are_over_all_positions_and_r2_is_against_the_variance():
    spec = replace(SMALL, objective="mse")
    model, _ = fresh(spec)
    part = run_data(spec).validation
    point = score(model, part, spec, 1, 0.0)
    model.eval()
    with torch.no_grad():
        error = (model(part.inputs)[:, :-1, 0] - part.targets[:, 1:]).double().square().mean()
    assert point.loss == pytest.approx(float(error), rel=1e-5)
    assert point.accuracy == pytest.approx(
        1 - float(error) / float(part.targets[:, 1:].double().var(correction=0)), rel=1e-4
    )


def test_a_run_that_diverges_ends_and_says_so(tmp_path):
    data = run_data(SMALL)
    data.train.inputs[3, 5, 0] = math.nan
    done = train(SMALL, data, ComputeOptions())
    assert [point.epoch for point in done.points] == [1]
    result = RunResult(SMALL, tuple(done.points), 1, 1, 1.0)
    assert result.diverged
    assert result.state == "diverged"
    with pytest.raises(DataError, match="diverged before"):
        result.best  # noqa: B018
    again = codec.parse(RunResult, codec.plain(result))
    assert again.diverged
    assert codec.plain(result)["points"][0]["train_loss"] is None


@pytest.fixture
def one_thread():
    """As each of several processes has: sums are in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_runs_are_kept_in_a_folder_read_again_and_equal_in_two_processes(tmp_path, one_thread):
    specs = [replace(SMALL, epochs=1, seed=seed) for seed in range(2)]
    seen = []
    first = runs.run_specs(specs, tmp_path / "a", progress=lambda done, total, what: seen.append((done, total)))
    assert seen[0] == (0, 2)
    assert seen[-1] == (2, 2)
    assert {path.suffix for path in (tmp_path / "a").iterdir() if path.name != ".lock"} == {".json", ".safetensors"}
    assert {"gram", "norms", "ranks"} <= set(first[0].diagnostics)
    both = runs.run_specs(specs, tmp_path / "b", engine=Engine(jobs=2))
    assert [one.points for one in both] == [one.points for one in first]
    stamp = (tmp_path / "a" / f"{specs[0].id}.json").stat().st_mtime_ns
    assert runs.run_specs(specs, tmp_path / "a")[1].points == first[1].points
    assert (tmp_path / "a" / f"{specs[0].id}.json").stat().st_mtime_ns == stamp
    model = models.build(specs[1])
    model.load_state_dict(weights(tmp_path / "a", specs[1]))
    again = score(model.eval(), run_data(specs[1]).validation, specs[1], 1, 0.0)
    assert again.loss == pytest.approx(first[1].points[-1].loss, abs=1e-6)


@pytest.mark.slow
def test_a_run_that_was_cut_short_goes_on_when_it_is_asked_for_more(tmp_path, one_thread):
    def run(folder, stop=0):
        seen = []
        (made,) = runs.run_specs(
            [SMALL], tmp_path / folder, how=ComputeOptions(stop=stop), progress=lambda *how: seen.append(how)
        )
        return made, seen[0][:2]

    whole, _ = run("whole")
    cut, _ = run("cut", stop=2)
    assert (cut.stopped, [point.epoch for point in cut.points]) == (2, [1, 2])
    shorter, began = run("cut", stop=1)
    assert (shorter.points, began) == (cut.points, (1, 1))
    state = tmp_path / "cut" / f"{SMALL.id}.state"
    kept = state.read_bytes()
    rest, began = run("cut")
    assert (rest.stopped, rest.points, began) == (0, whole.points, (0, 4))  # epoch 2 is not one to be validated
    assert not state.exists()
    ours, theirs = (weights(tmp_path / name, SMALL) for name in ("cut", "whole"))
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    run("bare", stop=2)
    (tmp_path / "bare" / f"{SMALL.id}.state").unlink()
    assert run("bare")[0].stopped == 2, "without its state a run is as it is"
    (tmp_path / "bare" / f"{SMALL.id}.state").write_bytes(kept)
    assert run("bare")[0].points == whole.points


@pytest.mark.slow
def test_a_stack_goes_on_as_if_it_had_not_stopped(tmp_path, one_thread, monkeypatch):
    monkeypatch.setattr(stacked_module, "validated", lambda epoch, epochs: True)
    monkeypatch.setattr("rankscope_lab.encoders.training.validated", lambda epoch, epochs: True)
    specs = [replace(SMALL, seed=seed) for seed in range(2)]

    def run(folder, chosen=specs, stop=0, stack=2):
        seen = []
        made = runs.run_specs(
            chosen,
            tmp_path / folder,
            how=ComputeOptions(stop=stop),
            stack=stack,
            progress=lambda done, total, what: seen.append(done),
        )
        return made, seen

    whole, _ = run("whole")
    run("cut", stop=2)
    torch.manual_seed(99)
    rest, seen = run("cut")
    assert [one.points for one in rest] == [one.points for one in whole]
    assert seen == [0, 4, 6, 8]  # two epochs of each are there already
    assert not list((tmp_path / "cut").glob("*.state"))
    for spec in specs:
        ours, theirs = (weights(tmp_path / name, spec) for name in ("cut", "whole"))
        assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    run("apart", stop=2)
    (first,), seen = run("apart", specs[:1], stop=3, stack=1)
    assert (first.stopped, first.points[:2], seen) == (3, whole[0].points[:2], [0, 2, 3])
    both, _ = run("apart")  # one has three epochs behind it, one two: no stack of both
    assert [[point.epoch for point in one.points] for one in both] == [[1, 2, 3, 4]] * 2
    assert both[1].stopped == 0


def test_a_run_that_is_further_than_it_is_asked_for_says_how_far(tmp_path, one_thread):
    class Stop(Exception):
        pass

    def leave(done, total, what):
        if done == 2:
            raise Stop

    spec = replace(SMALL, epochs=30)
    with pytest.raises(Stop):
        runs.run_specs([spec], tmp_path, how=ComputeOptions(stop=2), progress=leave)
    (made,) = runs.run_specs([spec], tmp_path, how=ComputeOptions(stop=1))
    assert (made.stopped, made.points[-1].epoch) == (2, 2)


@pytest.mark.slow
def test_stacks_are_made_as_small_as_the_memory_asks_for(tmp_path, one_thread, monkeypatch):
    tried, room = [], 3

    def train_stack(specs, data, how, **more):
        tried.append(len(specs))
        if len(specs) > room:
            raise torch.OutOfMemoryError
        return train_stacked(specs, data, how, **more)

    monkeypatch.setattr(runs, "train_stacked", train_stack)
    monkeypatch.setattr(runs.torch.cuda, "empty_cache", lambda: None)
    specs = [replace(SMALL, epochs=1, seed=seed) for seed in range(5)]
    made = runs.run_specs(specs, tmp_path, stack=5)
    assert tried == [5, 2, 2]  # and one by itself
    assert [one.spec for one in made] == specs
    tried.clear()
    monkeypatch.setattr(runs, "_room", lambda specs, how: 2)
    runs.run_specs(specs, tmp_path, stack=5, force=True)
    assert tried == [2, 2]

    def never(*parts, **more):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(runs, "train", never)
    with pytest.raises(RankscopeError, match=r"-s0 does not fit into the memory of cpu"):
        runs.run_specs(specs, tmp_path, force=True)


@pytest.mark.parametrize(
    ("spec", "seeds", "gib"),
    [
        (RunSpec("linear"), 16, 5.5),
        (RunSpec("ci"), 16, 22),
        (RunSpec("ci", channels=16), 16, 87),
        (RunSpec("cat"), 16, 60),
        (RunSpec("cat", channels=8), 16, 221),
        (etth1_spec("ci", 0), 16, 53),
        (etth1_spec("cat", 0), 8, 143),
    ],
)
def test_the_memory_of_a_stack(spec, seeds, gib):
    """Beside what the tensors of one step were counted to hold at its peak, on fake tensors."""
    assert stack_bytes(spec, seeds) / 2**30 == pytest.approx(gib, rel=0.03)
    room = 139 * 2**30
    fits = stack_size(spec, room)
    assert fits == 1 or stack_bytes(spec, fits) < room
    assert stack_bytes(spec, 3 * (fits + 1)) > room  # no less than a third of what would fit


def test_damaged_results_are_named(tmp_path):
    (tmp_path / f"{SMALL.id}.json").write_text("{}")
    with pytest.raises(DataError, match=r"lab-encoder-run@1\. Delete t"):
        runs.run_specs([SMALL], tmp_path)


def points(*losses):
    epochs = [1, *range(20, 20 * len(losses), 20)]
    return tuple(Point(epoch, 1.0, loss, 0.1) for epoch, loss in zip(epochs, losses, strict=True))


@pytest.mark.parametrize(
    ("losses", "state"),
    [
        ((3.0, 2.0, 1.9, 1.899), "improving"),
        ((3.0, 1.902, 1.901, 1.9), "converged"),
        ((3.0, 1.9, 2.2, 2.5), "overfitting"),
        ((3.0, 1.9, 1.905, 1.906), "converged"),
        ((3.0, math.nan), "diverged"),
    ],
)
def test_how_a_run_ended(losses, state):
    made = points(*losses)
    spec = RunSpec("linear", epochs=made[-1].epoch)
    assert RunResult(spec, made, 1, 1, 1.0).state == state
