"""
Jobs that were stopped: list them, go on with them, or remove them.

A computation with ``resume=True`` keeps a journal beside its result. After a kill, `unfinished` lists
the jobs in a folder, `resume` goes on with one, and `clean` removes what it left.
"""

from outcore.compute.jobs.leftovers import Unfinished, clean, resume, unfinished

__all__ = ["Unfinished", "clean", "resume", "unfinished"]
