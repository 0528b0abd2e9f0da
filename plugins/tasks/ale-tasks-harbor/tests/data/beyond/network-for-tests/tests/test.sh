#!/bin/sh
if [ "$(cat nets)" = lo ] && ls /sys/class/net | grep -q eth; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
