"""Functions of a project in Python: their declaration and source, and how they are called."""
