"""The local runtime: Java, jars, embedded broker, Spark session and connection to a metastore."""
