"""Claims on trial whose experiment stands in no lesson's cell, one module a lesson: a function a claim, which returns its row.

A row is ``(id, source, claim, measured, verdict, experiment)``, as :func:`helpers.lesson.verdicts` takes it.
"""
