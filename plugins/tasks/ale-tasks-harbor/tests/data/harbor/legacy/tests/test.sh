#!/bin/sh
if [ -e done ] && ! grep -q eth0 /proc/net/dev && [ "$(cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null)" = 134217728 ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi
