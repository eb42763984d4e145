"""`python -m sgm` is the `sgm` command."""

import sys

from sgm.cli import main

sys.exit(main())
