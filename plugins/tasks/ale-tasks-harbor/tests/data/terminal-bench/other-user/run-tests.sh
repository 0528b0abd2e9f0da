#!/bin/bash
if [ "$(stat -c %U done) $(id -un) $HOME" = "worker root /root" ]; then said=PASSED; else said=FAILED; fi
echo "=== short test summary info ==="
echo "$said test_outputs.py::test_it"
