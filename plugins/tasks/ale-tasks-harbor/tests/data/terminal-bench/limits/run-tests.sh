#!/bin/bash
echo "=========== short test summary info ==========="
if [ -e done ] && [ "$(cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null)" = 100663296 ]; then echo "PASSED tests/test_outputs.py::test_limit"; else echo "FAILED tests/test_outputs.py::test_limit - AssertionError: no"; fi
