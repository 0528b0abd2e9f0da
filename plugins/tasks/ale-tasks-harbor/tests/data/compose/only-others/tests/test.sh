#!/bin/sh
if grep -qx secret out.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
