"""Jobs of a table on a Ray cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import SaccadeError
from ..training.signals import stop_on_signals
from .runner import SECONDS, Context, Interrupted, Prepared, Queue, perform
from .study import Job


def perform_there(job: Job, folder: str, threads: int) -> str:
    """On a machine of a cluster, where the same folders are expected."""
    os.chdir(folder)
    return perform(job, Context(threads=threads, prepare=there))


there = Prepared()  # a process of a cluster runs several jobs


@contextmanager
def cluster(count: int, threads: int) -> Iterator[Any]:
    """Ray, connected to the cluster of RAY_ADDRESS, or started on this machine."""
    try:
        import ray
    except ImportError:
        raise SaccadeError(
            "--on ray needs the package ray; install it with: pip install 'saccade-attention[cluster]'",
            code="package-missing",
        ) from None
    mine = not ray.is_initialized()
    if mine:
        here: dict[str, Any] = (
            {}
            if os.environ.get("RAY_ADDRESS")
            else {"num_cpus": count * threads, "include_dashboard": False}
        )
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": str(threads),
        }
        ray.init(log_to_driver=False, runtime_env={"env_vars": variables}, **here)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def run_on_ray(queue: Queue, count: int, threads: int) -> None:
    """On a Ray cluster whose machines share the table's folder; at most `count` at a time. A row whose process died is run again."""
    with cluster(count, threads) as ray, stop_on_signals() as signals:
        gpus = ray.cluster_resources().get("GPU", 0)
        remote = ray.remote(max_retries=0, num_cpus=threads, num_gpus=min(1.0, gpus / count))(
            perform_there
        )
        running: dict[Any, Job] = {}
        while queue.open and not signals:
            while len(running) < count and (job := queue.take()):
                running[remote.remote(job, os.getcwd(), threads)] = job
            for ready in ray.wait(list(running), timeout=SECONDS)[0] if running else ():
                job = running.pop(ready)
                try:
                    queue.end(job, ray.get(ready))
                except (
                    ray.exceptions.WorkerCrashedError,
                    ray.exceptions.NodeDiedError,
                    ray.exceptions.OutOfMemoryError,
                ):
                    queue.died(job)
        if signals:
            for one in running:
                ray.cancel(one)  # a training writes a checkpoint first
            ray.wait(list(running), num_returns=len(running), timeout=60)
            raise Interrupted(signals[0])
