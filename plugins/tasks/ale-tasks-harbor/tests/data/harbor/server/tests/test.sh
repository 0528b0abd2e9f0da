#!/bin/sh
if [ "$(wget -q -O - http://localhost:8080/word)" = hi ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
