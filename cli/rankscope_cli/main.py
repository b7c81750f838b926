"""The Typer app; each verb is imported only when it runs, so that ``rankscope --help`` answers at once."""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Measure the rank structure of time-series foundation models, compress them, prove that forecasts held."""


@app.command()
def pretrain(
    config: str = typer.Argument(..., help="YAML file of the run, or the name of a shipped one."),
    out: str = typer.Option(..., "--out", help="Folder of the finished checkpoint."),
    resume: bool = typer.Option(False, "--resume", help="Go on from the newest snapshot."),
    force: bool = typer.Option(False, "--force", help="Replace the output folder."),
    device: str = typer.Option("auto", "--device", help="auto, cpu or cuda."),
) -> None:
    """Train a model from scratch on generated series."""
    import rankscope.pretrain as library

    def show(done: int, total: int, what: str) -> None:
        typer.echo(f"{done}/{total} {what}", err=True)

    report = library.pretrain(
        library.read_config(config), out, resume=resume, force=force, device=device, progress=show
    )
    typer.echo(str(report.to_json()))


def main() -> None:
    """Run the command line."""
    app()
