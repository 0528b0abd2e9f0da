#!/bin/bash
if [ "$(cat /etc/made)" = root ] && [ "$(id -un)" = worker ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
