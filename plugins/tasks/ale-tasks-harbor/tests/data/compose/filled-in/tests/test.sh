#!/bin/sh
if [ "$(cat out.txt | tr "\n" " ")" = "own own usual-last-$ " ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
