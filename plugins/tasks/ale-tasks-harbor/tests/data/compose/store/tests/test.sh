#!/bin/sh
wget -q -O more http://store/more
if [ "$(cat /app/out.txt /shared/out.txt more)" = "$(printf 'secret\nsecret\nmore')" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
