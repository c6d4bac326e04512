"""``python -m outcore`` is the command `outcore`."""

import sys

from outcore.cli import main

sys.exit(main())
