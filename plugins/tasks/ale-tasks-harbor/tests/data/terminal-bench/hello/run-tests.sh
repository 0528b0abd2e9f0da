#!/bin/bash
echo "=========== short test summary info ==========="
if [ "$(cat hello.txt 2>/dev/null)" = hello ]; then echo "PASSED tests/test_outputs.py::test_hello"; else echo "FAILED tests/test_outputs.py::test_hello - AssertionError: no"; fi
