"""
The steps of a call: what it asks of the system, of the core, and of other ranks.

Problem. A rank has to fail, or die, at every step of a call, also at those that its code will have
tomorrow; lists of functions that are patched forget some. Idea. A profile function of the thread sees
every call of what is written in C, so a step is a call of the system or of the core that others, or the
disk, notice. What only computes is no step: who dies there leaves what he leaves at the next step.

Objects of the core are made without such a call: `constructors` are functions that make them, and whose
calls are seen.
"""

import sys
import threading

from outcore import _core


def words(text):
    """The set of them."""
    return frozenset(text.split())


#: Of the system: what changes files, and what may be refused.
SYSTEM = words(
    "chmod fdatasync flock fsync ftruncate link listdir mkdir open posix_fallocate pwrite rename"
    " replace rmdir unlink write"
)
MODULES = words("_io fcntl io posix")
#: Of the core: functions, and methods by class.
FUNCTIONS = words(
    "allocate fsync_folder move_into_place own_price read_early read_many remove_left remove_orphan"
)
METHODS = {
    "Array": "before_flush flush read write write_part",
    "Background": "wait",
    "Owner": "batch read write",
    "TempFile": "publish",
}
#: What ranks do with each other: they die there, and do not fail.
TOGETHER = {
    "NodeBarrier": "agree gather share",
    "Window": "get put",
    "WordLocks": "give take",
}
MADE = ("Reservation", "SharedMemory", "TempFile")


def _table(names):
    found = {getattr(_core, kind, None): words(text) for kind, text in names.items()}
    return {kind: some for kind, some in found.items() if kind is not None}


_METHODS, _TOGETHER = _table(METHODS), _table(TOGETHER)


def _making(kind):
    def make(*args, **named):
        return kind(*args, **named)

    return make


#: By name what makes objects of the core in a way that is seen.
CONSTRUCTORS = {name: _making(getattr(_core, name)) for name in MADE}
_MAKE = CONSTRUCTORS[MADE[0]].__code__


def constructors(patch=setattr):
    """Have objects of the core made by functions; `patch` as `setattr`."""
    for name, make in CONSTRUCTORS.items():
        patch(_core, name, make)


class Steps:
    """
    Counts the steps of a thread; at number `at` (from 1) calls `act`.

    Parameters
    ----------
    at
        0: only count.
    act
        Gets the name of the step; what it raises is raised in place of the step.
    together
        Whether what ranks do with each other counts.
    started
        Whether threads count that are started meanwhile.
    also
        Tells whether another call in C counts, of its frame and function.
    """

    def __init__(self, at, act, *, together=False, started=False, also=None):
        self._at, self._act, self._started, self._also = at, act, started, also
        self._methods = {**_METHODS, **(_TOGETHER if together else {})}
        self.seen = []
        #: The step at which it was, if it was.
        self.struck = None

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return  # a module that is imported for the first time writes its bytecode
        if event == "c_call":
            name = arg.__name__
            kind = type(getattr(arg, "__self__", None))
            module = arg.__module__
            if kind in self._methods:
                if name not in self._methods[kind]:
                    return
            elif module in MODULES:
                if name not in SYSTEM:
                    return
            elif module == _core.__name__:
                if name not in FUNCTIONS:
                    return
            elif self._also is None or not self._also(frame, arg):
                return
        elif event == "call" and frame.f_code is _MAKE:
            name = frame.f_locals["kind"].__name__
        else:
            return
        self.seen.append(name)
        if len(self.seen) == self._at:
            caller = frame if event == "c_call" else frame.f_back
            self.struck = f"{name} in {caller.f_code.co_filename}:{caller.f_lineno}"
            self._act(self.struck)

    def __enter__(self):
        if self._started:
            threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *failure):
        sys.setprofile(None)
        if self._started:
            threading.setprofile(None)
