#!/bin/sh
# One of six jobs that work together: job.sh N

n=$1
mkdir -p meeting && : > "meeting/$n"
tries=0
while [ "$(ls meeting | wc -l)" -lt 6 ]; do
  tries=$((tries + 1))
  if [ $tries -gt 50 ]; then
    rm "meeting/$n"
    echo "job $n waited in vain" >&2
    exit 99
  fi
  sleep 0.1
done
echo "job $n: met $(ls meeting | wc -l | tr -d ' '), made $((n * n * 37 % 101))"
case $n in
  2) exit 5 ;;
  4) exit 17 ;;
  6) exit 29 ;;
esac
