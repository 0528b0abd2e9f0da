#!/bin/bash
echo noise
echo "SWE-Perf results starts here"
if [ -e done ]; then echo "PASSED"; else echo FAILED; fi
echo "SWE-Perf results ends here"
echo more noise
