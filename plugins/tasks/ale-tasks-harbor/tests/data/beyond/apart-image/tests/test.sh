#!/bin/sh
if [ "$(cat /made)" = here ] && grep -q right /app/folder/out.txt && [ ! -e /app/folder/old ]; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
