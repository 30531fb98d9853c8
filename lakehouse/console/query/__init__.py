"""The page for SQL: statements with the rights of a reader."""
