#!/bin/sh
# Starts the cluster of compose.yaml and waits until all of it is healthy, or removes it with all that it kept:
#
#   docker/stack.sh up | down | engine
#
# STACK names it (anabranch), so that several may run beside each other; STACK_TAG is that of the images (dev). `engine`
# says whether there is one, which is all that images need.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
export STACK="${STACK:-anabranch}" STACK_TAG="${STACK_TAG:-dev}"
ready_s=300

check_engine() {
    if ! docker info >/dev/null 2>&1; then
        echo 'No Docker engine answers. Install one and start it (Debian, Ubuntu: apt-get install docker.io), join the' >&2
        echo 'group docker, or name the socket of another one: DOCKER_HOST=unix:///path/to/docker.sock' >&2
        exit 2
    fi
}

check_compose() {
    if docker compose version >/dev/null 2>&1; then
        compose='docker compose'
    elif command -v docker-compose >/dev/null; then
        compose=docker-compose
    else
        echo 'Compose is missing. Install it (Debian, Ubuntu: apt-get install docker-compose, or the plugin' >&2
        echo 'docker-compose-plugin).' >&2
        exit 2
    fi
}

compose() { $compose --project-name "$STACK" --file "$here/compose.yaml" "$@"; }

down() { compose --profile grafana down --volumes --remove-orphans; }

# What keeps the stack from being ready, a container a line.
waiting() {
    for container in $(compose ps --all --quiet 2>/dev/null || compose ps --quiet); do
        docker inspect --format '{{ .Name }} {{ if .State.Health }}{{ .State.Health.Status }}{{ else if .State.Running -}}
            healthy{{ else }}{{ .State.Status }}{{ end }}' "$container"
    done | sed 's|^/||' | grep -v ' healthy$' || true
}

# Whether there is anything of it that somebody may want to keep.
is_there() { [ -n "$(docker volume ls --quiet --filter "label=org.anabranch.stack=$STACK")" ]; }

leave() { echo 'It was there before, so it stays, with its data. Take it down: make stack-down' >&2; }

up() {
    undo=down
    if is_there; then undo=leave; fi
    trap 'trap - INT TERM; echo interrupted >&2; $undo; exit 130' INT TERM
    began=$(date +%s)
    compose up --detach --remove-orphans || { $undo; exit 2; }
    while left=$(waiting) && [ -n "$left" ]; do
        if [ $(($(date +%s) - began)) -gt "$ready_s" ]; then
            echo "Not ready after $ready_s s:" >&2
            echo "$left" >&2
            echo "Look at one: docker logs NAME. Take all of it down: make stack-down" >&2
            exit 1
        fi
        sleep 0.5
    done
    trap - INT TERM
    addresses $(($(date +%s) - began))
}

addresses() {
    echo "ready after $1 s:"
    for node in node-1 node-2 node-3; do
        echo "  $node       http://$(local_port $node 8080), pulsar://$(local_port $node 6650)"
    done
    echo "  proxy        http://$(local_port proxy 8080), pulsar://$(local_port proxy 6650)"
    echo "  Kafka        $(local_port kafka-1 19092),$(local_port kafka-2 19092),$(local_port kafka-3 19092)"
    echo "  Spark        http://$(local_port spark-master 8080)"
    echo "  audits       http://$(local_port audits 9099)"
    echo "  Prometheus   http://$(local_port prometheus 9090)/alerts"
    name=$(docker inspect --format '{{ .Name }}' "$(compose ps --quiet node-1)")
    echo "A command: docker exec ${name#/} anabranch brokers"
}

local_port() { compose port "$1" "$2" | sed 's/^127\.0\.0\.1/localhost/'; }

check_engine
[ "${1:-}" = engine ] && exit 0
check_compose
case ${1:-} in
    up) up ;;
    down) down ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
