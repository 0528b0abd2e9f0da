#!/bin/bash
echo "=========== short test summary info ==========="
if [ -e one ]; then echo "PASSED tests/test_outputs.py::test_one"; else echo "FAILED tests/test_outputs.py::test_one - AssertionError: no"; fi
if [ -e two ]; then echo "PASSED tests/test_outputs.py::test_two"; else echo "FAILED tests/test_outputs.py::test_two - AssertionError: no"; fi
