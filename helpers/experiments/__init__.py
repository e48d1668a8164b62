"""What the lessons' experiments measure and show, one module a lesson: tables, figures, devices, what sets an experiment up.

The code that carries a lesson's idea stands in its open cells.
"""
