"""Runs one function over many tasks: in this process, in a pool of processes, or on a Dask cluster.

Tasks and results travel by pickle, so `function` is a top-level function. A worker that dies (out of
memory, kill -9) takes only its own task with it: the task is tried again alone, and when it kills its
worker again it fails with the name of its file.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, TypeVar

from pipeline.model.errors import MfulossError, UsageError

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total); `total` 0 means unknown."""

_TRIES = 2
_POLL_S = 0.25
_SCHEDULER_TIMEOUT_S = 10


class WorkerDied(MfulossError):
    """A worker process ended without an answer, each time it was given this task."""


def no_progress(stage: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""


def default_jobs() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_tasks(
    function: Callable[[T], R],
    tasks: Sequence[T],
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    label: Callable[[T], str] = str,
    done: Callable[[T, R], None] | None = None,
    waiting: Callable[[], None] | None = None,
    on_death: Callable[[T, WorkerDied], R] | None = None,
) -> list[R]:
    """`function` of each task, in the tasks' order.

    jobs: processes (default: all cores; 1: this process). scheduler: address of a Dask scheduler, or
    `local:N` for N workers on this machine; needs the extra `cluster`. done(task, result) is called as
    results arrive, waiting() a few times a second between. A task whose worker dies twice raises
    WorkerDied, or its result is `on_death(task, error)`. What `function` raises is raised here, and the
    rest is cancelled.
    """
    results: dict[int, R] = {}

    def keep(index: int, result: R) -> None:
        results[index] = result
        if done is not None:
            done(tasks[index], result)

    def died(index: int, times: int) -> None:
        cure = "use fewer --jobs" if scheduler is None else "give the cluster's workers more"
        error = WorkerDied(
            f"the worker process that read it died {times} times",
            where=label(tasks[index]),
            todo=f"it may need more memory: {cure}",
        )
        if on_death is None:
            raise error
        keep(index, on_death(tasks[index], error))

    workers = default_jobs() if jobs is None else max(1, jobs)
    if scheduler is not None:
        _on_dask(function, tasks, scheduler, keep, died)
    elif workers == 1 or len(tasks) <= 1:
        for index, task in enumerate(tasks):
            keep(index, function(task))
    else:
        _in_pool(function, tasks, min(workers, len(tasks)), keep, died, waiting)
    return [results[index] for index in range(len(tasks))]


def _in_pool(
    function: Callable[[T], R],
    tasks: Sequence[T],
    workers: int,
    keep: Callable[[int, R], None],
    died: Callable[[int, int], None],
    waiting: Callable[[], None] | None,
) -> None:
    left = dict.fromkeys(range(len(tasks)), 0)  # task → deaths of its worker that are certainly its own
    suspects = _run_pool(function, tasks, list(left), workers, keep, waiting)
    for index in suspects:
        # Which task killed the pool is not known, so each that was under way runs again alone.
        for _ in range(_TRIES):
            if not _run_pool(function, tasks, [index], 1, keep, waiting):
                break
        else:
            died(index, _TRIES)


def _run_pool(
    function: Callable[[T], R],
    tasks: Sequence[T],
    indices: list[int],
    workers: int,
    keep: Callable[[int, R], None],
    waiting: Callable[[], None] | None,
) -> list[int]:
    """Indices of the tasks that have no result because a worker died."""
    with _pool(workers) as pool:
        futures: dict[Future[R], int] = {}
        queue = iter(indices)
        unfinished: list[int] = []
        broken = False
        # No more tasks are handed out than there are workers: the others are not suspects when one dies.
        pending: set[Future[R]] = set()
        for index in queue:
            future = pool.submit(function, tasks[index])
            futures[future] = index
            pending.add(future)
            if len(pending) >= workers:
                break
        while pending:
            finished, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            if waiting is not None:
                waiting()
            for future in finished:
                index = futures.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    unfinished.append(index)
                    broken = True
                    continue
                keep(index, result)
                following = None if broken else next(queue, None)
                if following is not None:
                    try:
                        future = pool.submit(function, tasks[following])
                    except BrokenProcessPool:
                        unfinished.append(following)
                        broken = True
                        continue
                    futures[future] = following
                    pending.add(future)
    rest = list(queue)
    if rest and len(rest) + len(unfinished) < len(indices):
        # Something was done before the pool broke: what never started runs in a new pool.
        unfinished += _run_pool(function, tasks, rest, workers, keep, waiting)
    else:
        unfinished += rest
    return unfinished


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # spawn: the parent has threads of DuckDB and Arrow, which fork would copy half.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=_Context(),
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    try:
        yield pool
    except BaseException:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            with suppress(Exception):
                process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)


class _Process(SpawnProcess):
    """A worker that doesn't run the program's main module again: its tasks are functions of this package.

    So a script that calls `pipeline.ingest` needs no `if __name__ == "__main__"`, without which each worker
    would start the whole work once more.
    """

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


def _start_worker(parent: int) -> None:
    """The parent alone answers Ctrl-C; a worker whose parent is gone (kill -9) ends itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cluster_line(scheduler: str) -> str:
    """What a Dask scheduler tells of itself: how many workers it has, and where its dashboard is."""
    with _client(scheduler, scheduler) as client:
        told = client.scheduler_info(n_workers=-1)
        workers = len(told["workers"])
        dashboard = client.dashboard_link if "dashboard" in told["services"] else "off"
    waits = ", so tasks wait" if workers == 0 else ""
    return f"Dask at {scheduler}: {workers} worker{'s' * (workers != 1)}{waits}; dashboard {dashboard}"


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UsageError(
            "--scheduler needs dask.distributed", todo="install the extra: pip install 'mfuloss[cluster]'"
        ) from None
    return distributed


def _client(cluster: Any, scheduler: str) -> Any:
    try:
        return _distributed().Client(cluster, timeout=_SCHEDULER_TIMEOUT_S)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {scheduler}: {error}", todo="check the address, or use local:N"
        ) from None


def _on_dask(
    function: Callable[[T], R],
    tasks: Sequence[T],
    scheduler: str,
    keep: Callable[[int, R], None],
    died: Callable[[int, int], None],
) -> None:
    _distributed()
    import dask
    from distributed import KilledWorker, LocalCluster, as_completed

    dask.config.set({"distributed.scheduler.allowed-failures": _TRIES - 1})
    kind, _, number = scheduler.partition(":")
    cluster: Any = None
    if kind == "local":
        if number and not number.isdigit():
            raise UsageError(f"--scheduler {scheduler}: local:N needs a number of workers")
        workers = int(number) if number else default_jobs()
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)
    try:
        with _client(cluster if cluster is not None else scheduler, scheduler) as client:
            futures = {client.submit(function, task, pure=False): index for index, task in enumerate(tasks)}
            suspects: dict[int, int] = {}  # task → deaths of its workers, as the scheduler allows
            try:
                for future in as_completed(list(futures)):
                    index = futures[future]
                    try:
                        result = future.result()
                    except KilledWorker as error:
                        suspects[index] = error.allowed_failures + 1
                    else:
                        keep(index, result)
                for index, deaths in suspects.items():
                    # Dask blames every task that was at a worker which died: alone, only the guilty one fails.
                    future = client.submit(function, tasks[index], pure=False)
                    futures[future] = index
                    try:
                        result = future.result()
                    except KilledWorker as error:
                        died(index, deaths + error.allowed_failures + 1)
                    else:
                        keep(index, result)
            except BaseException:
                client.cancel(list(futures))
                raise
    finally:
        if cluster is not None:
            cluster.close()
