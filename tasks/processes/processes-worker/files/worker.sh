#!/bin/sh
# Works for ever: writes a line to beats.log several times a second.

if [ -z "$WORKER_NAME" ]; then
  echo "WORKER_NAME is not set" >&2
  exit 1
fi
n=0
while :; do
  n=$((n + 1))
  echo "$WORKER_NAME $$ $n" >> beats.log
  sleep 0.1
done
