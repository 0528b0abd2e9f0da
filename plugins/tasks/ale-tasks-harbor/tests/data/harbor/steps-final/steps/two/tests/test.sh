#!/bin/sh
if [ -e two ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
