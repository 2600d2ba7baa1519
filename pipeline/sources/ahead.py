"""An iterator that runs ahead of its consumer, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1


def ahead(items: Iterator[T], depth: int = 4) -> Generator[T, None, None]:
    """`items`, produced in a thread up to `depth` items before they are asked for.

    For producers that spend their time outside the interpreter's lock (drivers, decoders). An error of the
    producer is raised where the consumer reaches it. Closing the iterator stops and joins the thread.
    """
    waiting: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(depth)
    stop = threading.Event()

    def put(entry: tuple[str, T | BaseException | None]) -> bool:
        while not stop.is_set():
            try:
                waiting.put(entry, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def produce() -> None:
        try:
            for item in items:
                if not put(("item", item)):
                    return
            put(("end", None))
        except BaseException as error:  # noqa: BLE001 - handed to the consumer
            put(("error", error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=produce, name="ahead", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = waiting.get()
            if kind == "end":
                return
            if isinstance(value, BaseException):
                raise value
            yield value  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
