"""What is known about the SQL of which the lake keeps results: in columns, views and models."""
