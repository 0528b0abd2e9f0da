#!/bin/sh
if [ "$(cat out.txt) $(id -un) $HOME" = "guest worker /home/worker" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
