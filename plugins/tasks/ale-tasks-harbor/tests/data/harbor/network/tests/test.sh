#!/bin/sh
if [ -e done ] && grep -q eth0 /proc/net/dev; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi
