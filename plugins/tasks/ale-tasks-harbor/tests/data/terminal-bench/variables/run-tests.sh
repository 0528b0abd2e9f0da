#!/bin/bash
echo "=========== short test summary info ==========="
if [ "$(cat said)" = "good day in $TEST_DIR" ] && [ "$TEST_DIR" = /tests ]; then echo "PASSED tests/test_outputs.py::test_said"; else echo "FAILED tests/test_outputs.py::test_said - AssertionError: no"; fi
