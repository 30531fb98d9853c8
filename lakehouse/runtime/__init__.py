"""What runs on this machine: Java, jars, the embedded broker, the Spark session, the metastore."""
