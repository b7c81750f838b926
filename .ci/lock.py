"""Write `requirements-ci.txt`: the wheels that `constraints.txt` pins for this platform, each with its hash.

    python .ci/lock.py    # by the pip of the same environment

torch is left out: its wheel, and what that brings along, is another one on every kind of machine.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "requirements-ci.txt"
HEAD = "# Wheels for Linux x86-64 and Python 3.11, by .ci/lock.py from constraints.txt; torch is apart.\n"


def main() -> None:
    """Resolve without installing, and write."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    wanted = ["--constraint", "constraints.txt", ".[dev,docs]", "hatchling", "editables"]
    report = json.loads(subprocess.run([*pip, *wanted], cwd=ROOT, check=True, capture_output=True).stdout)
    lines = []
    for one in report["install"]:
        name, version = one["metadata"]["name"], one["metadata"]["version"]
        if name not in {"rankscope", "torch"} and not name.startswith(("nvidia-", "cuda-", "triton")):
            sha = one["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={version} --hash=sha256:{sha}\n")
    OUT.write_text(HEAD + "".join(sorted(lines, key=str.lower)))


if __name__ == "__main__":
    main()
