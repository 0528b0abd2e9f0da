#!/bin/sh
wget -q -O again http://127.0.0.1:8080/word
if cmp -s out.txt again; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
