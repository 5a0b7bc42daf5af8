#!/bin/sh
# Runs a part of a standalone Spark, `master` or `worker spark://HOST:PORT`, or a command of anabranch:
# `audit --master spark://HOST:PORT`, ... What Spark's own variables say (SPARK_WORKER_MEMORY) holds.
set -eu

case ${1:-} in
    master) class=org.apache.spark.deploy.master.Master ;;
    worker) class=org.apache.spark.deploy.worker.Worker ;;
    *) exec anabranch "$@" ;;
esac
shift
exec "$SPARK_HOME/bin/spark-class" "$class" "$@"
