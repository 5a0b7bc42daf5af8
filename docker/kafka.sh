#!/bin/sh
# Starts a Kafka node. A variable KAFKA_NODE_ID is the setting node.id, and so on; a folder without data
# is given the cluster id of KAFKA_CLUSTER_ID first. KAFKA_HEAP: of its JVM, 512m unless told otherwise.
set -eu

data=${KAFKA_LOG_DIRS:-/var/lib/kafka/data}
settings=/tmp/server.properties
{
    echo "log.dirs=$data"
    env | grep '^KAFKA_' | grep -vE '^KAFKA_(HEAP|CLUSTER_ID|LOG_DIRS)=' | while IFS= read -r line; do
        name=$(printf %s "${line%%=*}" | sed 's/^KAFKA_//' | tr 'A-Z_' 'a-z.')
        printf '%s=%s\n' "$name" "${line#*=}"
    done
} > "$settings"

run() {
    exec java "-Xmx${KAFKA_HEAP:-512m}" -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true \
        -Dlog4j2.configurationFile=/opt/kafka/log4j2.yaml -cp '/opt/kafka/libs/*' "$@"
}
if [ ! -f "$data/meta.properties" ]; then
    (run kafka.tools.StorageTool format --cluster-id "${KAFKA_CLUSTER_ID:?name one}" --config "$settings")
fi
run kafka.Kafka "$settings"
