"""The shipped application, an online store: its topic file and its generated data."""
