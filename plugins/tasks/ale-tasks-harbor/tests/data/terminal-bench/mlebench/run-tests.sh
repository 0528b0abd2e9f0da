#!/bin/bash
echo noise
echo "MLEBench results starts here"
if [ -e done ]; then echo "ALL TESTS PASSED"; else echo FAILED; fi
echo "MLEBench results ends here"
echo more noise
