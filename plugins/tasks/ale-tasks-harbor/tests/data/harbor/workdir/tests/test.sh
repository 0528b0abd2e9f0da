#!/bin/sh
if [ -e /srv/deep/done ] && [ "$PWD" = /srv/deep ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi
