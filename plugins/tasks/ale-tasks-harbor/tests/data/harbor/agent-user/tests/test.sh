#!/bin/sh
if grep -qx worker out.txt && [ "$(id -u)$HOME" = 0/root ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
