"""What a process stands on: Java, Spark, jars, local servers, stores, networks."""
