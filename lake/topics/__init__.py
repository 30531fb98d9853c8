"""The topic file: which topics there are, and what their messages mean."""
