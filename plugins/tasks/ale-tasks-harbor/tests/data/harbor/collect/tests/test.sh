#!/bin/sh
if [ -e kept ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
