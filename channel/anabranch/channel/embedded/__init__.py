"""A real single-node Kafka as a child process, for development, the demo and tests.

`kafka.EmbeddedKafka` runs it; `jars.resolve` fetches and verifies the jars it and Spark run on.
Nothing is imported here, so that `java` can be checked before any dependency is installed.
"""
