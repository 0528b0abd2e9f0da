#!/bin/bash
echo "=========== short test summary info ==========="
if [ -e /app/deep/done ]; then echo "PASSED tests/test_outputs.py::test_done"; else echo "FAILED tests/test_outputs.py::test_done - AssertionError: no"; fi
