#!/bin/sh
wget -q -O again http://127.0.0.1:8080/word
if cmp -s out.txt again; then said=PASSED; else said=FAILED; fi
echo '=== short test summary info ==='
echo "$said test_outputs.py::test_word"
