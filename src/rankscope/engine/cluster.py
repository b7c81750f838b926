"""Joining a Ray cluster (``pip install 'rankscope[ray]'``)."""

from __future__ import annotations

import signal
import socket
import threading
from typing import Any

from rankscope.errors import OptionError, one_line

ANSWER = 10.0
"""Seconds within which a cluster has to answer."""


def import_ray() -> Any:
    """The package ray.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise OptionError("engine ray needs Ray: pip install 'rankscope[ray]', or use engine local.") from error
    return ray


def connect(ray: Any, address: str, jobs: int) -> None:
    """Join the cluster at ``address``, as ``ray.init`` takes it; empty starts Ray on this machine.

    Args:
        ray: the package.
        address: of the cluster.
        jobs: CPUs of a Ray that is started here; 0 for all.

    Raises:
        OptionError: no cluster answers.
    """
    own = {} if address else {"num_cpus": jobs or None, "include_dashboard": False}
    _check_answers(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **own)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise OptionError(f"no Ray cluster answers at {address!r}: {one_line(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray puts a handler of its own in place


def _check_answers(address: str) -> None:
    """Refuse ``host:port`` where nothing listens: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise OptionError(f"no Ray cluster answers at {address!r}: {one_line(error)}") from error
