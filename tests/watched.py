"""Owners of a two-phase collective that a test sees, delays or lets fail."""

import threading

from outcore import _core
from outcore.base import requests

__all__ = ["Late", "Seen", "Watched", "use"]


class Watched:
    """The owner of the core, with the same calls; to be derived from."""

    real = _core.Owner

    def __init__(self, plan, rank, arrays, rewrites=None, exclusive=None):
        self.plan, self.rank = plan, rank
        self.owner = self.real(plan, rank, arrays, rewrites, exclusive)

    def read(self, k, slot, after=None):
        return self.owner.read(k, slot, after)

    def batch(self, k, slot):
        return self.owner.batch(k, slot)

    def write(self, writes, holes):
        return self.owner.write(writes, holes)

    def price(self, **words):
        return self.owner.price(**words)


class Seen(Watched):
    """Says when each access begins and ends: `begin` and `end` get its kind, and know the owner."""

    def begin(self, kind):
        """Called by the thread that makes the access."""

    def end(self, kind):
        """The same."""

    def read(self, k, slot, after=None):
        def work():
            if after is not None:
                after.finish()
            self.begin("read")
            try:
                self.owner.read(k, slot).wait()
            finally:
                self.end("read")

        return requests.start(work, "a read")

    def write(self, writes, holes):
        def work():
            self.begin("write")
            try:
                self.owner.write(writes, holes).wait()
            finally:
                self.end("write")

        return requests.start(work, "a write")


class Late(Watched):
    """What it does in the background begins when somebody waits for it, and not before."""

    begun = 0

    def read(self, k, slot, after=None):
        def begin():
            if after is not None:
                after.wait()
            return self.owner.read(k, slot)

        return _Late(begin)

    def write(self, writes, holes):
        return _Late(lambda: self.owner.write(writes, holes))


class _Late:
    def __init__(self, begin):
        self.begin, self.done, self.lock = begin, False, threading.Lock()

    def wait(self):
        with self.lock:
            if not self.done:
                self.done = True
                Late.begun += 1
                self.begin().wait()


def use(monkeypatch, kind):
    """Have collectives make owners of this kind."""
    monkeypatch.setattr(_core, "Owner", kind)
