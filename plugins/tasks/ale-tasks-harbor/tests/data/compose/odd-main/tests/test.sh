#!/bin/sh
if grep -q hello /work/out.txt && grep -q 127.0.0.9 /etc/hosts && grep -q " /scratch tmpfs" /proc/mounts; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
