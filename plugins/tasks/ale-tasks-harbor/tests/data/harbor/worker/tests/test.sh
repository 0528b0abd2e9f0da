#!/bin/sh
if [ -e done ] && [ "$(id -un)" = worker ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi
