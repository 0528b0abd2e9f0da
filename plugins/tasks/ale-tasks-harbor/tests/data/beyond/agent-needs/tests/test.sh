#!/bin/sh
if [ -e done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
