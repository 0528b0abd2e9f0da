#!/bin/bash
echo noise
echo "SWEBench results starts here"
if [ -e done ]; then echo "PASSED"; else echo FAILED; fi
echo "SWEBench results ends here"
echo more noise
