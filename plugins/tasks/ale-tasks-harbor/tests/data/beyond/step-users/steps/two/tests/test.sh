#!/bin/sh
if [ "$(cat /tmp/two)" = 0 ] && [ "$(stat -c %u /tmp/one)" = 1234 ] && [ "$(cat /tmp/setup)" = 1234 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
