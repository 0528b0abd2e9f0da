#!/bin/sh
# What is no artifact is not here.
if grep -q right /app/out.txt && [ -e /logs/artifacts/log ] && [ ! -e /app/other.txt ]; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
