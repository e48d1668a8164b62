"""For instructors and maintainers: build the notebooks from their masters, and grade them. Needs Jupyter and nbgrader."""
