#!/bin/bash
if [ -e done ]; then echo "SWE Lancer Success"; else echo "SWE Lancer Failure"; fi
