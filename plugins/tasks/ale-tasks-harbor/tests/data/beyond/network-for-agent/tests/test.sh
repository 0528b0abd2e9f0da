#!/bin/sh
if grep -q eth nets && [ "$(ls /sys/class/net)" = lo ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
