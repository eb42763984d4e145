"""`python -m sgm` runs the `sgm` command."""

import sys

from sgm.cli import main

sys.exit(main())
