"""How many answers are graded at a time: slots for all, places beside them for slow ones."""

from __future__ import annotations

import threading
from collections import deque


class Slots:
    """A semaphore that is handed on to whoever has waited longest.

    Of `threading`'s, a thread that has just released it mostly gets it again, so that one answer
    could wait for all the others of a batch.
    """

    def __init__(self, count: int):
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[threading.Event] = deque()

    def acquire(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            turn.wait()
        except BaseException:  # an interrupt
            with self._lock:
                came = turn.is_set()
                if not came:
                    self._waiting.remove(turn)
            if came:
                self.release()
            raise

    def release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class Place:
    """One of the slots; once its answer is slow, one of the places beside them."""

    def __init__(self, slots: Slots, slow: threading.Semaphore):
        self._slots, self._slow = slots, slow
        self._held: Slots | threading.Semaphore = slots

    def __enter__(self) -> Place:
        self._held.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.release()

    def give_up_the_slot(self) -> bool:
        """Whether the answer is now beside the slots."""
        if self._held is self._slots and self._slow.acquire(blocking=False):
            self._slots.release()
            self._held = self._slow
        return self._held is self._slow
