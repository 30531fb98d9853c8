"""The SQL endpoint: how it is served, who may connect, and Spark Connect."""
