#!/bin/sh
if grep -q right /evidence/answer && [ ! -e /app/answer ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
