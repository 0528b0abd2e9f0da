#!/bin/sh
if [ "$(cat out.txt)" = word ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
