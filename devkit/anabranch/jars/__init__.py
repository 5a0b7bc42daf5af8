"""The jars that Kafka and Spark run on, and the Java that runs them.

`cache.resolve` fetches and verifies the jars, and `java.find_java` tells what is missing. Nothing
is imported here, so that `java` can be checked before any dependency is installed.
"""
