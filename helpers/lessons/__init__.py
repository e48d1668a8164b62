"""What the tests of the lessons share: one module a lesson, named as the lesson's folder is without its number.

For each exercise it holds the *drive* (runs in the learner's process and measures), the *judge* (runs where the grade
is given and says what is wrong), a dataclass of its cases where plain arguments would not say what they are, and
``check_<name>(*cases)``, which a visible test and a hidden one call alike: it checks the learner's ``<name>``. What
only a hidden test may know, such as a reference that is the answer, stays in the hidden cell and is passed in.
"""
