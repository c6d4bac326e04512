"""The papers' tables on this machine; each module does some of them. `cases/papers.py` prints them."""
