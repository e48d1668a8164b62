"""All about this package is in pyproject.toml. This file names Python where it is too old: pip would blame a package."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - that is the point
    sys.exit("This course needs Python 3.11 or newer; this is %d.%d.%d." % tuple(sys.version_info[:3]))  # noqa: UP031

from setuptools import setup

setup()
