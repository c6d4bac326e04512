"""Functions for ``progress=`` that interrupt a job, as Ctrl-C or an error of the caller does."""


class Stop(Exception):
    """Error that interrupts a job."""


def stop_after(calls, error=Stop):
    """Return a progress function that raises an error at each call after this number of calls."""

    def progress(done, total):
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise error

    return progress


def stop_at(share):
    """Return a progress function that raises `Stop` when more than this share is done."""

    def progress(done, total):
        if done > share * total:
            raise Stop

    return progress
