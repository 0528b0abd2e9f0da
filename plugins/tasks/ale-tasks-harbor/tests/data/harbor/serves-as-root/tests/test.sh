#!/bin/sh
if [ "$(cat out.txt)" = 0 ] && [ "$(stat -c %a .)" = 777 ] && [ "$(stat -c %u out.txt)" = 1000 ] && [ "$(id -u)" = 0 ]
then echo 1; else echo 0; fi >/logs/verifier/reward.txt
