#!/bin/sh
if [ "$(cat said)" = "$EXPECTED" ] && [ -z "$WHOM" ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi
