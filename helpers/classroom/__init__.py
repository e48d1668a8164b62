"""For instructors and maintainers: build the notebooks from their masters, and grade them. Needs Jupyter and nbgrader."""

import sys

# Whoever imports nbformat imports jsonschema, and that would make a parser of international web addresses, which takes
# longer than all else of it and which no notebook needs. It does without where the parser's package is not installed.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
