"""Run the command `outcore` as ``python -m outcore.cli``."""

import sys

from outcore.cli import main

sys.exit(main())
