"""Tokenizers by size of the codebook, and the simpler parts."""

from __future__ import annotations

from statistics import fmean

from claims.intervals import span
from claims.lab.shared import TOKENIZERS, only, plus_minus
from claims.records import Claim, Document, table

SIZES, UPDATES = (64, 256, 1024), ("ema", "revived", "loss")


def codes_of(found: Document, *updates: str) -> list[Document]:
    """Runs of tokenizers whose codes learn in these ways."""
    names = {f"vq-{size}-{update}-" for size in SIZES for update in updates}
    return [run for run in found["runs"] if any(run["id"].startswith(name) for name in names)]


def codes(found: Document) -> str:
    """Errors, use of codes and ranks by size of the codebook and by how codes learn."""
    rows = []
    for size in SIZES:
        for update in UPDATES:
            row = only(found["rows"], component="vq", setting=f"{size}-{update}")
            runs = [run for run in found["runs"] if run["id"].startswith(f"vq-{size}-{update}-")]
            ranks = []
            for part in ("codebook", "stream"):
                ranks += [f"{fmean(run[part]['eps_ranks'][level] for run in runs):.1f}" for level in ("0.1", "0.01")]
                ranks.append(f"{fmean(run[part]['effective_rank'] for run in runs):.2f}")
            error = plus_minus({"mean": row["error"], "std": row["error_std"]}, 4)
            rows.append([f"{size} `{update}`", error, f"{row['used']:.0f}", f"{row['perplexity']:.1f}", *ranks])
    parts = [f"{part}{name}" for part in ("", "series, ") for name in ("ε = 0.1", "ε = 0.01", "effective")]
    return table(["codes", "MSE", "used", "perplexity", *parts], rows)


def error_of(found: Document, size: int, update: str) -> float:
    """Mean error of tokenizers."""
    error: float = only(found["rows"], component="vq", setting=f"{size}-{update}")["error"]
    return error


def use(found: Document) -> Document:
    """What more codes bring, and what becomes of codes that learn by the loss alone."""
    falls = {update: 100 * (1 - error_of(found, 1024, update) / error_of(found, 64, update)) for update in UPDATES[:2]}
    worse = span(
        error_of(found, size, "loss") / error_of(found, size, update) for size in SIZES for update in UPDATES[:2]
    )
    loss = codes_of(found, "loss")
    return {
        **falls,
        "few": span(run["codebook"]["eps_ranks"]["0.1"] for run in codes_of(found, *UPDATES[:2])),
        "used": span(run["used"] for run in loss),
        "worse": worse,
        "codebook": span(run["codebook"]["eps_ranks"]["0.01"] for run in loss),
        "stream": span(run["stream"]["eps_ranks"]["0.01"] for run in loss),
    }


def fine_ranks(found: Document) -> dict[str, dict[int, list[int]]]:
    """ε-ranks of codebooks at 0.01, by update and size, a number per seed."""
    return {
        update: {
            size: [run["codebook"]["eps_ranks"]["0.01"] for run in found["runs"] if run["id"].startswith(name)]
            for size in SIZES
            for name in [f"vq-{size}-{update}-"]
        }
        for update in UPDATES[:2]
    }


def fine(found: Document) -> Document:
    """Growth of the mean ε-rank at 0.01 from the least to the most codes, in percent."""
    return {update: 100 * (fmean(by[1024]) / fmean(by[64]) - 1) for update, by in fine_ranks(found).items()}


def fine_grows(found: Document) -> bool:
    """True if the ε-rank at 0.01 is higher with 1024 codes than with 64, by both updates and in every seed."""
    pairs = [pair for by in fine_ranks(found).values() for pair in zip(by[64], by[1024], strict=True)]
    return all(few < many for few, many in pairs)


def largest_is_unused(found: Document) -> bool:
    """True if the codebooks that learn by the loss alone have more directions at 0.01 than any other."""
    others = [run["codebook"]["eps_ranks"]["0.01"] for run in codes_of(found, *UPDATES[:2])]
    return bool(use(found)["codebook"]["least"] > max(others))


def no_gain_at_1024(found: Document) -> bool:
    """True if 1024 codes are no better than 256 where they follow averages, and better where they are revived."""
    small, large = ({update: error_of(found, size, update) for update in UPDATES} for size in (256, 1024))
    return large["ema"] > small["ema"] and large["revived"] < small["revived"]


def parts(found: Document) -> str:
    """Errors of the other parts beside what each is compared with."""

    def row(part: str, task: str, component: str, setting: str, beside: str) -> list[str]:
        one = only(found["rows"], component=component, setting=setting)
        error = plus_minus({"mean": one["error"], "std": one["error_std"]}, 4)
        return [part, task, error, f"{one['reference']:.4f}, {beside}"]

    def copies(task: str, setting: str, unseen: str) -> list[str]:
        runs = [run for run in found["runs"] if run["id"].startswith(f"copy-{setting}-")]
        steps, fresh = span(run["steps"] for run in runs), span(run["fresh"] for run in runs)
        wrong = f"{fresh['least']:.2f} to {fresh['most']:.2f}" if fresh["most"] else "0"
        one = only(found["rows"], component="copy", setting=setting)
        error = f"{one['error']:.0f} wrong after {steps['least']} to {steps['most']} steps, {wrong} {unseen}"
        return ["transformer, copy", task, error, f"{one['reference']:.3f}, guessing"]

    day, naive, principal = "24 hours of all variables from 96", "seasonal naive", "8 principal components"
    return table(
        ["part", "task", "error", "beside"],
        [
            row(
                "linear regression by SGD",
                "next value from 24, all variables; 20 epochs at half the stability bound",
                "linear-regression",
                "sgd",
                "least squares",
            ),
            row("autoencoder, linear", "windows of 96 through 8; 300 epochs", "autoencoder", "linear", principal),
            row("autoencoder, 96–64–32–8", "the same", "autoencoder", "nonlinear", principal),
            copies("8 of 15 symbols, fresh sequences in every step", "fresh", "in 512 sequences never seen"),
            copies("64 sequences learnt by heart", "learnt", "in sequences never seen"),
            row(
                "transformer, forecast at once",
                f"{day}, learned queries; 5 epochs of 100 steps",
                "forecast",
                "one-shot-96-24",
                naive,
            ),
            row(
                "transformer, forecast step by step",
                "the same, teacher forcing; windows a day apart",
                "forecast",
                "stepwise-96-24",
                naive,
            ),
        ],
    )


def no_better_than_components(found: Document) -> bool:
    """True if the linear autoencoder is ahead of the other, and principal components of both."""
    linear, other = (only(found["rows"], component="autoencoder", setting=one) for one in ("linear", "nonlinear"))
    return bool(other["error"] > linear["error"] > linear["reference"])


def forecasts(found: Document) -> Document:
    """Forecasts at once against the seasonal naive, in percent; error of steps under teacher forcing."""
    once, steps = (
        [run for run in found["runs"] if run["id"].startswith(f"forecast-{mode}-")] for mode in ("one-shot", "stepwise")
    )
    naive = found["every_naive"]
    return {
        "below": 100 * (1 - fmean(run["every"]["mse"] for run in once) / naive["mse"]),
        "above": 100 * (fmean(run["every"]["mae"] for run in once) / naive["mae"] - 1),
        "forced": fmean(run["points"][-1][-1] for run in steps),
        "falling": all(run["points"][-1][-1] < run["points"][-2][-1] for run in once),
    }


CLAIMS: tuple[Claim, ...] = (
    TOKENIZERS.block("lab-codes", codes),
    TOKENIZERS.block("lab-parts", parts),
    TOKENIZERS.says(
        "the error falls by {ema:.0f} % (`ema`) or {revived:.0f} % (`revived`). The ε-rank at $0.1$ stays at "
        "{few[least]} to {few[most]} of 64",
        use,
    ),
    TOKENIZERS.says("codebook's ε-rank at $0.1$ stays at {few[least]} to {few[most]} of 64", use),
    TOKENIZERS.says(
        "At $0.01$ it grows in every seed, by {ema:.0f} % and {revived:.0f} % in the means", fine, fine_grows
    ),
    TOKENIZERS.says("At 1024 codes `ema` gains nothing", holds=no_gain_at_1024),
    TOKENIZERS.says(
        "By the codebook loss alone {used[least]} to {used[most]} codes are left in use on the test rows, whatever $K$ "
        "is, and errors are {worse[least]:.1f} to {worse[most]:.1f} times as high",
        use,
    ),
    TOKENIZERS.says(
        "With `loss` the ε-rank at $0.01$ is {codebook[least]} to {codebook[most]}", use, largest_is_unused
    ),
    TOKENIZERS.says("the test rows as codes, has rank {stream[least]} to {stream[most]} there", use),
    TOKENIZERS.says("does not beat the linear one on windows of later months", holds=no_better_than_components),
    TOKENIZERS.says(
        "the small transformer is {below:.0f} % below the seasonal naive in squared error after 500 steps, and "
        "{above:.0f} % above it in absolute error",
        forecasts,
        lambda found: forecasts(found)["falling"],
    ),
    TOKENIZERS.says("its error under teacher forcing is only {forced:.2f}", forecasts),
)
