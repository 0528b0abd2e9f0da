#!/bin/sh
if [ "$(cat /tmp/one)" = 1234 ] && [ "$(id -u)" = 0 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
