"""Functions of ``cpu.cpp``, compiled once per machine."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("cpu.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC", "-std=c++17")
"""No ``-ffast-math``: linked with it, a library makes its whole process round subnormal numbers to 0."""

_POINTER, _SIZE, _BITS, _FLOAT, _SEED = (
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_uint32,
    ctypes.c_float,
    ctypes.c_uint64,
)
_ELEMENTWISE = [_POINTER, _SIZE, _SIZE, _BITS, _FLOAT, _SEED, _POINTER]
_ATTENTION = [_POINTER, _SIZE, _SIZE, _SIZE, _SIZE, ctypes.c_int32, _BITS, _FLOAT, _SEED, _POINTER]
_SIGNATURES = {
    "attention_forward": ([*_ATTENTION, _POINTER, _POINTER], ctypes.c_int),
    "attention_backward": ([*_ATTENTION, _POINTER, _POINTER, _POINTER], ctypes.c_int),
    "dropout": (_ELEMENTWISE, None),
    "gelu_dropout": (_ELEMENTWISE, None),
    "gelu_dropout_back": ([*_ELEMENTWISE, _POINTER], None),
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library; None if there is no compiler or it fails.

    The result is kept in the user's cache folder under a name made of the source, the flags and the processor.
    """
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        return None
    target = _folder() / f"lab-{_fingerprint(compiler)}.so"
    try:
        if not target.is_file():
            _compile(compiler, target)
        loaded = ctypes.CDLL(str(target))
    except (OSError, subprocess.SubprocessError):
        return None
    for name, (arguments, result) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankscope" / "kernels"


def _fingerprint(compiler: str) -> str:
    """Of whatever the compiled file depends on; ``-march=native`` makes the processor one of these."""
    parts = [SOURCE.read_text(encoding="utf-8"), compiler, *FLAGS, platform.machine(), _processor()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _compile(compiler: str, target: Path) -> None:
    """Compile to a temporary file and rename, so that concurrent processes never see a partial file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "lab.so"
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(made)], check=True, capture_output=True, timeout=120)
        os.replace(made, target)
