"""Read by JupyterLab's *Validate* button: it runs set-up, answers and tests, and passes over the experiments.

On a JupyterHub also by *Nbgrader → Assignment List*, which fetches lessons, hands them in and brings feedback.
"""

import os

from helpers.classroom.settings import CELL_TIMEOUT, COURSE_ID, EXCHANGE, EXPERIMENT_TAG, QUIET_KERNEL

c = get_config()  # noqa: F821 - traitlets provides get_config
c.NotebookClient.skip_cells_with_tag = EXPERIMENT_TAG
c.Execute.extra_arguments = QUIET_KERNEL
c.Execute.timeout = CELL_TIMEOUT
c.ExecutePreprocessor.timeout = CELL_TIMEOUT
c.CourseDirectory.course_id = COURSE_ID
if exchange := os.environ.get(EXCHANGE):
    c.Exchange.root = exchange
