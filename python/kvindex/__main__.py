"""`python -m kvindex`."""

import sys

from kvindex.cli import main

if __name__ == "__main__":
    sys.exit(main())
