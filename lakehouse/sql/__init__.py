"""The SQL endpoint, its users and protection, and Spark Connect."""
