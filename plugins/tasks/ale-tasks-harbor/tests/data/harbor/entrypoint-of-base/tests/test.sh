#!/bin/sh
rm -f /tmp/beat
sleep 1
if [ -e done ] && [ "$(cat /tmp/beat)" = "sh -c sleep infinity" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
