"""Draw the ladder: python -m helpers.running_example docs/ladder.png, as `make build` does for README."""

import sys
from pathlib import Path

from helpers.running_example.whole import ladder

print(f"drawn: {ladder().save(Path(sys.argv[1]))}")
