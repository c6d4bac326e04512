"""
Interrupted jobs: list, resume or remove them.

A computation with ``resume=True`` keeps a journal next to its result. After a kill, `unfinished` lists
the jobs in a folder, `resume` resumes one, and `clean` removes its files.
"""

from outcore.compute.jobs.leftovers import Unfinished, clean, resume, unfinished

__all__ = ["Unfinished", "clean", "resume", "unfinished"]
