"""``python -m outcore.cli`` is the command `outcore`, too."""

import sys

from outcore.cli import main

sys.exit(main())
